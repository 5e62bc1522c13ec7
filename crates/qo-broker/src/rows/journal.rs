//! The journal that writes each group as rows.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qo_core::task::ScopedKey;
use qo_core::{QueueState, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::Stats;
use qo_store::runtime::{BoxFuture, Runtime};

use super::archive::FinishedTasks;
use super::batch::BatchBuilder;
use super::in_flight::EndedInFlight;
use super::keys::CountKey;
use super::payload_cleanup::PayloadCleanup;
use super::port::{RowGroup, RowWriter};
use super::proof::WriterProof;
use crate::journal::{CommitOutcome, GroupChanges, Journal, LookedUp, Lookup};
use crate::message::{Message, Submit};
use crate::retention::Retention;

/// For how long after the last proof an empty response to a claim needs no new proof that this engine is the writer.
const EMPTY_TRUST: Duration = Duration::from_secs(1);

pub(super) struct RowJournal {
    pub(super) writer: Box<dyn RowWriter>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) retention: Retention,
    pub(super) finished: FinishedTasks,
    pub(super) batch_builder: BatchBuilder,
    pub(super) ended_in_flight: EndedInFlight,
    pub(super) proof: Arc<WriterProof>,
    pub(super) _cleanup: PayloadCleanup,
}

impl RowJournal {
    /// Confirms without a write of its own that the state which was read is still current.
    fn confirm(&self, changes: &GroupChanges) -> BoxFuture<Result<(), EngineError>> {
        let now = self.runtime.monotonic();
        let is_proven = !changes.reads_state && self.proof.age(now) < EMPTY_TRUST;
        if is_proven {
            return Box::pin(std::future::ready(Ok(())));
        }
        let read = self.proof.moment(now);
        let (proof, runtime) = (Arc::clone(&self.proof), Arc::clone(&self.runtime));
        Box::pin(async move { proof.after(read, || runtime.monotonic()).await })
    }
}

/// Drops finished tasks from memory: they are in the database now.
fn forget_finished(state: &mut QueueState) {
    let finished: Vec<TaskId> = state.ended().map(|(_, id)| id).collect();
    for id in finished {
        state.forget(id);
    }
}

#[async_trait]
impl Journal for RowJournal {
    fn must_load(&self) -> bool {
        false
    }

    async fn load(&mut self, _state: &mut QueueState) -> Result<(), EngineError> {
        Ok(())
    }

    async fn commit(
        &mut self,
        state: &mut QueueState,
        changes: &GroupChanges,
        now: Timestamp,
    ) -> CommitOutcome {
        if changes.is_empty() {
            forget_finished(state);
            self.batch_builder.looked_up.clear();
            let confirmed = self.confirm(changes);
            return CommitOutcome::InFlight(Box::pin(
                async move { confirmed.await.map(|()| None) },
            ));
        }
        let longest_ms = self.retention.longest_ms(state);
        self.batch_builder.counts.expire(now, longest_ms);
        let writes = match self
            .batch_builder
            .build(state, changes, self.retention, now)
        {
            Ok(writes) => writes,
            Err(error) => return CommitOutcome::InFlight(Box::pin(std::future::ready(Err(error)))),
        };
        forget_finished(state);
        self.batch_builder.looked_up.clear();
        let began = self.proof.moment(self.runtime.monotonic());
        let in_flight = self.ended_in_flight.add(&writes);
        let durable = self.writer.write(RowGroup {
            writes,
            commands: changes.commands.clone().unwrap_or_default(),
            now,
        });
        let proof = Arc::clone(&self.proof);
        CommitOutcome::InFlight(Box::pin(async move {
            let index = durable.await?;
            drop(in_flight);
            proof.succeeded(began);
            Ok(index)
        }))
    }

    fn in_flight_max(&self) -> usize {
        self.writer.in_flight_max().max(1)
    }

    fn names_commands(&self) -> bool {
        self.writer.names_commands()
    }

    fn lookup_needed(
        &self,
        state: &QueueState,
        message: &Message,
        now: Timestamp,
    ) -> Option<Lookup> {
        let unknown = |id: &TaskId| state.task(*id).is_none();
        let lookup = match message {
            Message::Submit(call) => {
                // While a key is valid, its holder is the only one. After that a finished task may hold it instead.
                let is_held = |key: &ScopedKey| {
                    let holder = state.key_holder(key).and_then(|id| state.task(id));
                    holder.is_some_and(|holder| holder.key_holds(now))
                };
                let mut lookup = Lookup::default();
                // A task without a chosen id and without a key cannot exist already.
                let may_exist =
                    |submit: &&Submit| submit.id_is_chosen || submit.request.idempotency.is_some();
                for submit in call.request.iter().filter(may_exist) {
                    // A task that the state holds is the answer, whatever its key.
                    if submit.id_is_chosen && !unknown(&submit.id) {
                        lookup.held.ids.push(submit.id);
                        continue;
                    }
                    lookup.ids.extend(submit.id_is_chosen.then_some(submit.id));
                    match submit.request.scoped_key() {
                        Some(key) if is_held(&key) => lookup.held.keys.push(key),
                        key => lookup.keys.extend(key),
                    }
                }
                lookup
            }
            Message::Act(_) | Message::Get(_) | Message::Purge(_) => Lookup {
                ids: message.task_id().filter(unknown).into_iter().collect(),
                ..Lookup::default()
            },
            _ => return None,
        };
        (!lookup.ids.is_empty() || !lookup.keys.is_empty()).then_some(lookup)
    }

    fn look_up(&self, lookup: Lookup) -> BoxFuture<Result<LookedUp, EngineError>> {
        let finished = self.finished.clone();
        // The task, or the holder of a key, may have finished in a group that is not written to the database yet.
        let waits = !lookup.keys.is_empty() || self.ended_in_flight.concerns(&lookup.ids);
        let drained = waits.then(|| self.writer.drained());
        Box::pin(async move {
            if let Some(drained) = drained {
                drained.await;
            }
            finished.look_up(lookup).await
        })
    }

    fn task_loaded(&mut self, task: &Task) {
        self.batch_builder
            .looked_up
            .insert(task.id, CountKey::of(task));
    }

    fn add_stats(&self, stats: &mut Stats, state: &QueueState, now: Timestamp) {
        self.batch_builder
            .counts
            .add_to(stats, state, now, self.retention);
        // A finished task that was looked up is in the state for a moment and was counted there as well.
        for key in self.batch_builder.looked_up.values() {
            if let Some(queue) = stats.queues.get_mut(&key.queue) {
                queue.subtract_one(&key.task_type, key.status);
            }
        }
    }

    fn ended(&self) -> BoxFuture<EngineError> {
        self.writer.ended()
    }

    async fn close(&mut self) {
        self.writer.close().await;
    }
}
