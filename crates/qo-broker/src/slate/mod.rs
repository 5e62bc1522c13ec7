//! The queue in SlateDB, on the same object store: one writer, and few requests a task.
//!
//! ```text
//! group ──► one WriteBatch ──► SlateDB's memory ──► write-ahead log: one PUT for all groups that came meanwhile
//!                                   │                        │
//!                                   ▼                        ▼
//!                     tables, compacted in the background   durable: the callers are answered, in order
//! ```
//!
//! Live tasks are in memory and in the database; a task that comes to its end leaves the memory and stays in the database for
//! the retention time. The state in memory runs ahead of what is durable, by the groups that are on their way, and nothing of
//! it is told to anybody before it is.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | a large payload is stored beside the database | an orphan, which no task names |
//! | 2 | the group is applied to the state and handed to SlateDB as one batch | nothing: it was in memory only |
//! | 3 | the write-ahead log is written: **the group is durable** | all of the group; a caller that was not answered asks again |
//! | 4 | the callers are answered | nothing |
//!
//! A second engine that opens the database ends the first ([`leadership`]): its writes fail and its reads are refused, both
//! with [`EngineError::NotLeader`], and it stops.

mod archive;
mod batch;
mod cache;
mod clock;
mod config;
mod counts;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod keys;
mod leadership;
mod leftovers;
mod live;
mod load;
mod settings;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStore;
use qo_core::{QueueState, Task, TaskId, Timestamp};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{BoxFuture, Runtime};
use slatedb::{CloseReason, Db};

pub use config::SlateConfig;

use qo_engine::EngineError;
use qo_engine::api::Stats;

use self::archive::EndedTasks;
use self::batch::Index;
use self::clock::RuntimeClock;
use self::error::{PLACE, from_slate};
use self::keys::CountKey;
use self::leadership::Leadership;
use self::leftovers::Leftovers;
use self::writer::Writer;
use super::BrokerEngine;
use super::journal::{Committed, Found, GroupChanges, Journal, Want};
use super::message::{Message, QueuedMessage};
use super::payloads::forget_payloads;

/// For how long after the last proof of leadership a claim may be told that there is nothing, without another proof.
const EMPTY_TRUST: Duration = Duration::from_secs(1);
/// How long a clean end may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);

impl BrokerEngine {
    /// The engine that keeps the queue in SlateDB. Whoever opens it takes over: an engine that had it open before stops.
    pub async fn slate(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        client: ClientConfig,
        config: SlateConfig,
    ) -> Result<Self, EngineError> {
        let client = StoreClient::new(Arc::clone(&objects), clock, Arc::clone(&runtime), client);
        let leadership = Leadership::take(&client, runtime.as_ref()).await?;
        let opening = Db::builder(PLACE, objects)
            .with_settings(settings::settings(&config))
            .with_db_cache(settings::cache(), 0)
            .with_block_cache_policy(settings::cache_policy())
            .with_system_clock(RuntimeClock::new(&runtime, client.now()))
            .with_seed(runtime.random())
            .build();
        // What happens only once need not make the futures of all callers large.
        let db = Box::pin(opening)
            .await
            .map_err(|error| from_slate(&error))?;
        let (space, index) = Box::pin(load::load(&db, &runtime)).await?;
        let ended = EndedTasks::new(db.clone(), client.clone());
        let leftovers = Leftovers::start(db.clone(), client.clone(), &runtime);
        let state = config.state.clone();
        let journal = SlateJournal {
            writer: Writer::start(db.clone(), &runtime),
            db,
            client: client.clone(),
            runtime: Arc::clone(&runtime),
            retention_ms: u64::try_from(config.retention.as_millis()).unwrap_or(u64::MAX),
            config,
            leadership,
            ended: ended.clone(),
            index,
            proof: Arc::default(),
            _leftovers: leftovers,
        };
        let archive = Some(Arc::new(ended) as Arc<dyn super::Archive>);
        Ok(Self::start(space, journal, client, runtime, state, archive))
    }
}

struct SlateJournal {
    db: Db,
    writer: Writer,
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: SlateConfig,
    retention_ms: u64,
    leadership: Leadership,
    ended: EndedTasks,
    index: Index,
    proof: Arc<Proof>,
    _leftovers: Leftovers,
}

/// What shows that this engine still is the writer.
#[derive(Debug, Default)]
struct Proof {
    /// How many writes are on their way. Each of them is a proof when it is durable.
    under_way: AtomicUsize,
    /// When the newest proof was asked for, in milliseconds of the runtime's monotonic time.
    asked_at_ms: AtomicU64,
}

impl SlateJournal {
    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.runtime.monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    /// Makes sure that what was read is still true, without a write.
    fn confirm(&self, changes: &GroupChanges) -> BoxFuture<Result<(), EngineError>> {
        // Answers are given in order: what comes behind a write is told only if that write became durable, which a fenced
        // writer's does not.
        let is_proven = self.proof.under_way.load(Ordering::Acquire) > 0;
        if is_proven {
            return Box::pin(std::future::ready(Ok(())));
        }
        let asked_at_ms = self.monotonic_ms();
        let trusted_ms = self.proof.asked_at_ms.load(Ordering::Acquire);
        let is_fresh = Duration::from_millis(asked_at_ms.saturating_sub(trusted_ms)) < EMPTY_TRUST;
        if !changes.reads && is_fresh {
            return Box::pin(std::future::ready(Ok(())));
        }
        let leadership = self.leadership.clone();
        let proof = Arc::clone(&self.proof);
        Box::pin(async move {
            leadership.check().await?;
            proof.asked_at_ms.fetch_max(asked_at_ms, Ordering::AcqRel);
            Ok(())
        })
    }
}

/// Drops from memory what has come to its end: it is in the database now.
fn forget_ended(state: &mut QueueState) {
    let ended: Vec<TaskId> = state.ended().map(|(_, id)| id).collect();
    for id in ended {
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
    ) -> Committed {
        if changes.is_empty() {
            forget_ended(state);
            self.index.fetched.clear();
            return Committed::Later(self.confirm(changes));
        }
        self.index.counts.expire(now, self.retention_ms);
        let batch = match self.index.batch(state, changes, self.retention_ms, now) {
            Ok(batch) => batch,
            Err(error) => return Committed::Later(Box::pin(std::future::ready(Err(error)))),
        };
        forget_ended(state);
        self.index.fetched.clear();
        let asked_at_ms = self.monotonic_ms();
        let durable = self.writer.write(batch);
        forget_payloads(&self.client, self.runtime.as_ref(), &changes.removed);
        let proof = Arc::clone(&self.proof);
        proof.under_way.fetch_add(1, Ordering::AcqRel);
        Committed::Later(Box::pin(async move {
            let durable = durable.await;
            proof.under_way.fetch_sub(1, Ordering::AcqRel);
            durable?;
            proof.asked_at_ms.fetch_max(asked_at_ms, Ordering::AcqRel);
            Ok(())
        }))
    }

    fn in_flight_max(&self) -> usize {
        self.config.in_flight_max.max(1)
    }

    fn want(&self, state: &QueueState, queued: &QueuedMessage) -> Option<Want> {
        match &queued.message {
            Message::Submit(call) => {
                // Those that may have to be looked up come alone.
                let [submit] = call.request.as_slice() else {
                    return None;
                };
                let key = submit
                    .request
                    .scoped_key()
                    .filter(|key| !queued.absent.key && state.key_holder(key).is_none());
                if let Some(key) = key {
                    return Some(Want::Key(key));
                }
                let is_unknown =
                    submit.id_is_chosen && !queued.absent.id && state.task(submit.id).is_none();
                is_unknown.then_some(Want::Task(submit.id))
            }
            Message::Act(_) | Message::Get(_) | Message::Purge(_) => {
                let id = queued.message.task_id()?;
                let is_unknown = !queued.absent.id && state.task(id).is_none();
                is_unknown.then_some(Want::Task(id))
            }
            _ => None,
        }
    }

    fn fetch(&self, want: Want) -> BoxFuture<Result<Found, EngineError>> {
        let ended = self.ended.clone();
        // What is looked for may have ended in a group that the database has not taken in yet.
        let taken_in = self.writer.taken_in();
        Box::pin(async move {
            taken_in.await;
            ended.fetch(want).await
        })
    }

    fn took_in(&mut self, task: &Task) {
        self.index.fetched.insert(task.id, CountKey::of(task));
    }

    fn add_stats(&self, stats: &mut Stats, now: Timestamp) {
        self.index.counts.add_to(stats, now, self.retention_ms);
        // What was fetched for somebody is in the state for a moment, and has been counted there.
        for key in self.index.fetched.values() {
            if let Some(queue) = stats.queues.get_mut(&key.queue) {
                queue.subtract_one(&key.task_type, key.status);
            }
        }
    }

    fn over(&self) -> BoxFuture<EngineError> {
        let mut status = self.db.subscribe();
        let leadership = self.leadership.clone();
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
                        if leadership.check().await == Err(EngineError::NotLeader) {
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
                    tracing::debug!(%error, "the database was over already");
                }
            }
            () = limit => tracing::warn!("the database did not close in time; nothing is lost by that"),
        }
    }
}
