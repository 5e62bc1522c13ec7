//! The queue in SlateDB, on the same object store: one writer, and few store requests per task.
//!
//! ```text
//! group ──► one WriteBatch ──► SlateDB's memory ──► write-ahead log: one PUT for all groups that arrived meanwhile
//!                                   │                        │
//!                                   ▼                        ▼
//!                     tables, compacted in the background   durable: the callers get responses, in order
//! ```
//!
//! Live tasks are in memory and in the database. A finished task leaves the memory and stays in the database for the retention time.
//! The state in memory is ahead of the durable state by the groups in flight. No response reveals a change before it is durable.
//!
//! | step | action | effect of a crash right after it |
//! | --- | --- | --- |
//! | 1 | a large payload is stored as its own object | an orphan, which no task refers to |
//! | 2 | the group is applied to the state and sent to SlateDB as one batch | none: the group was in memory only |
//! | 3 | the write-ahead log is written: **the group is durable** | the whole group is stored; a caller without a response retries |
//! | 4 | the callers get their responses | none |
//!
//! A second engine that opens the database ends the first ([`fence`]): the first engine's writes and reads fail with
//! [`EngineError::NotLeader`], and it stops.

mod archive;
mod batch;
mod cache;
mod clock;
mod config;
mod counts;
mod error;
mod fence;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod keys;
mod live;
mod load;
mod payload_cleanup;
mod proof;
mod settings;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStore;
use qo_core::task::ScopedKey;
use qo_core::{QueueState, Task, TaskId, Timestamp};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{BoxFuture, Runtime};
use slatedb::{CloseReason, Db};

pub use config::SlateConfig;

use qo_engine::EngineError;
use qo_engine::api::Stats;

use self::archive::FinishedTasks;
use self::batch::BatchBuilder;
use self::clock::RuntimeClock;
use self::error::{DB_PATH, from_slate};
use self::fence::WriterFence;
use self::keys::CountKey;
use self::payload_cleanup::PayloadCleanup;
use self::proof::WriterProof;
use self::writer::BatchWriter;
use super::BrokerEngine;
use super::journal::{CommitOutcome, GroupChanges, Journal, Lookup};
use super::message::Message;

/// For how long after the last proof an empty response to a claim needs no new proof that this engine is the writer.
const EMPTY_TRUST: Duration = Duration::from_secs(1);
/// How long a clean close may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);

impl BrokerEngine {
    /// The engine that stores the queue in SlateDB. Opening it takes over: an engine that had the database open before stops.
    pub async fn slate(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        client: ClientConfig,
        config: SlateConfig,
    ) -> Result<Self, EngineError> {
        let client = StoreClient::new(Arc::clone(&objects), clock, Arc::clone(&runtime), client);
        let fence = WriterFence::take(&client, &runtime).await?;
        let proof = Arc::new(WriterProof::new(fence.clone(), runtime.monotonic()));
        let slate_clock = RuntimeClock::new(&runtime, client.now());
        let opening = Db::builder(DB_PATH, objects)
            .with_settings(settings::settings(&config))
            .with_db_cache(settings::cache(), 0)
            .with_block_cache_policy(settings::cache_policy())
            .with_system_clock(Arc::clone(&slate_clock) as _)
            .with_seed(runtime.random())
            .build();
        // Boxed, so that these one-time futures do not enlarge the futures of all callers.
        let db = Box::pin(opening)
            .await
            .map_err(|error| from_slate(&error))?;
        slate_clock.catch_up(&db).await?;
        let (state, batch_builder) = Box::pin(load::load(&db, &runtime)).await?;
        let finished = FinishedTasks::new(db.clone(), client.clone());
        let (cleanup, cleanup_ended) = PayloadCleanup::new();
        let cleanup_interval = config.cleanup_interval;
        let cleanup_db = db.clone();
        let broker_config = config.state.clone();
        let journal = SlateJournal {
            writer: BatchWriter::start(db.clone(), &runtime),
            db,
            runtime: Arc::clone(&runtime),
            retention_ms: u64::try_from(config.retention.as_millis()).unwrap_or(u64::MAX),
            config,
            fence,
            finished: finished.clone(),
            batch_builder,
            proof,
            _cleanup: cleanup,
        };
        let archive = Some(Arc::new(finished) as Arc<dyn super::Archive>);
        let engine = Self::start(state, journal, client, runtime, broker_config, archive);
        let weak = Arc::downgrade(&engine.shared);
        let cleanup = payload_cleanup::run(cleanup_db, weak, cleanup_interval, cleanup_ended);
        engine.shared.runtime.spawn(Box::pin(cleanup));
        Ok(engine)
    }
}

struct SlateJournal {
    db: Db,
    writer: BatchWriter,
    runtime: Arc<dyn Runtime>,
    config: SlateConfig,
    retention_ms: u64,
    fence: WriterFence,
    finished: FinishedTasks,
    batch_builder: BatchBuilder,
    proof: Arc<WriterProof>,
    _cleanup: PayloadCleanup,
}

impl SlateJournal {
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
impl Journal for SlateJournal {
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
            return CommitOutcome::InFlight(self.confirm(changes));
        }
        self.batch_builder.counts.expire(now, self.retention_ms);
        let batch = match self
            .batch_builder
            .build(state, changes, self.retention_ms, now)
        {
            Ok(batch) => batch,
            Err(error) => return CommitOutcome::InFlight(Box::pin(std::future::ready(Err(error)))),
        };
        forget_finished(state);
        self.batch_builder.looked_up.clear();
        let began = self.proof.moment(self.runtime.monotonic());
        let durable = self.writer.write(batch);
        let proof = Arc::clone(&self.proof);
        CommitOutcome::InFlight(Box::pin(async move {
            durable.await?;
            proof.succeeded(began);
            Ok(())
        }))
    }

    fn in_flight_max(&self) -> usize {
        self.config.in_flight_max.max(1)
    }

    fn lookup_needed(
        &self,
        state: &QueueState,
        message: &Message,
        now: Timestamp,
    ) -> Option<Lookup> {
        let unknown = |id: TaskId| state.task(id).is_none().then_some(id);
        let lookup = match message {
            Message::Submit(call) => {
                // Submits that may need a lookup are sent alone.
                let [submit] = call.request.as_slice() else {
                    return None;
                };
                if submit.id_is_chosen {
                    unknown(submit.id)?;
                }
                // While a key is valid, its holder is the only one. After that a finished task may hold it instead.
                let is_held = |key: &ScopedKey| {
                    let holder = state.key_holder(key).and_then(|id| state.task(id));
                    holder.is_some_and(|holder| holder.key_holds(now))
                };
                Lookup {
                    id: submit.id_is_chosen.then_some(submit.id),
                    key: submit.request.scoped_key().filter(|key| !is_held(key)),
                }
            }
            Message::Act(_) | Message::Get(_) | Message::Purge(_) => Lookup {
                id: message.task_id().and_then(unknown),
                key: None,
            },
            _ => return None,
        };
        (lookup.id.is_some() || lookup.key.is_some()).then_some(lookup)
    }

    fn look_up(&self, lookup: Lookup) -> BoxFuture<Result<Vec<Task>, EngineError>> {
        let finished = self.finished.clone();
        // The task may have finished in a group that is not written to the database yet.
        let drained = self.writer.drained();
        Box::pin(async move {
            drained.await;
            finished.look_up(lookup).await
        })
    }

    fn task_loaded(&mut self, task: &Task) {
        self.batch_builder
            .looked_up
            .insert(task.id, CountKey::of(task));
    }

    fn add_stats(&self, stats: &mut Stats, now: Timestamp) {
        self.batch_builder
            .counts
            .add_to(stats, now, self.retention_ms);
        // A finished task that was looked up is in the state for a moment and was counted there as well.
        for key in self.batch_builder.looked_up.values() {
            if let Some(queue) = stats.queues.get_mut(&key.queue) {
                queue.subtract_one(&key.task_type, key.status);
            }
        }
    }

    fn ended(&self) -> BoxFuture<EngineError> {
        let mut status = self.db.subscribe();
        let fence = self.fence.clone();
        let runtime = Arc::clone(&self.runtime);
        let interval = self.config.leader_interval;
        Box::pin(async move {
            loop {
                let sleep = runtime.sleep(interval);
                tokio::select! {
                    biased;
                    changed = status.changed() => {
                        let reason = status.borrow_and_update().close_reason;
                        match reason {
                            Some(CloseReason::Fenced) => return EngineError::NotLeader,
                            Some(_) => return EngineError::Closed,
                            None if changed.is_err() => return EngineError::Closed,
                            None => {}
                        }
                    }
                    () = sleep => {
                        if fence.check().await == Err(EngineError::NotLeader) {
                            return EngineError::NotLeader;
                        }
                    }
                }
            }
        })
    }

    async fn close(&mut self) {
        let limit = self.runtime.sleep(CLOSE_LIMIT);
        tokio::select! {
            biased;
            closed = self.db.close() => {
                if let Err(error) = closed {
                    tracing::debug!(%error, "the database was closed already");
                }
            }
            () = limit => tracing::warn!("the database did not close in time; no data is lost"),
        }
    }
}
