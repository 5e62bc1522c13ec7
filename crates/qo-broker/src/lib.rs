//! Broker mode: the queue is in memory, and changes are made durable in groups.
//!
//! One process holds a [`QueueState`] and applies commands to it in order, in one loop ([`commit`]). A [`journal`] makes the
//! changes of all callers that arrive at about the same time durable with one write:
//!
//! - [`json`]: one readable JSON object, changed by compare-and-swap. Any number of processes may share it.
//! - `slate`, behind the feature of that name: SlateDB on the same object store. One process at a time, and few store requests per task.
//! - `rows`, behind the feature of that name: any ordered database of rows, such as SlateDB or the replicated database of cluster mode.
//!
//! The loop does not handle objects, and the journals do not handle callers. `docs/internals/broker-mode.md` describes both
//! protocols. The tables of what a crash after each step leaves are in the modules of the journals and of [`election`].

mod apply;
#[cfg_attr(
    not(feature = "rows"),
    expect(unreachable_pub, reason = "`rows` exports the types of this module")
)]
mod command;
mod commit;
mod config;
mod documents;
pub mod election;
mod engine_impl;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod inbox;
mod journal;
mod json;
mod message;
mod notify;
mod payload_guard;
mod payload_removal;
mod payloads;
mod retention;
#[cfg(feature = "rows")]
pub mod rows;
#[cfg(feature = "slate")]
mod slate;
mod submit_batch;
mod unused_inputs;
mod worker_cleanup;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qo_core::{OpId, QueueState, Task, TaskId};
use qo_store::StoreClient;
use qo_store::runtime::{Runtime, RuntimeExt};
use tokio::sync::mpsc;

pub use config::{BrokerConfig, JsonConfig};
#[cfg(feature = "slate")]
pub use slate::SlateConfig;

use qo_engine::EngineError;
use qo_engine::watch::Watchers;
use qo_engine::worker_records::WorkerRecords;

use self::commit::{CommitLoop, LoopLinks};
use self::inbox::{Outbox, lanes};
use self::journal::Journal;
use self::message::{Call, Message, QueuedMessage};
use self::payload_guard::PayloadGuards;
use self::unused_inputs::KeptInputs;

/// How often, and at which interval, [`BrokerEngine::ended`] polls for the reason of the end.
const END_POLLS_MAX: usize = 500;
const END_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The engine of broker mode. Clones share everything.
#[derive(Clone)]
pub struct BrokerEngine {
    shared: Arc<EngineShared>,
}

struct EngineShared {
    outbox: Outbox,
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: BrokerConfig,
    /// The reason why the loop has ended.
    ended: Arc<OnceLock<EngineError>>,
    /// The finished tasks, if the state does not hold them.
    archive: Option<Arc<dyn Archive>>,
    watchers: Watchers,
    payload_guards: PayloadGuards,
    kept_inputs: KeptInputs,
    workers: WorkerRecords,
}

/// Finished tasks that are no longer in the state.
#[async_trait::async_trait]
trait Archive: Send + Sync {
    /// The first `limit` matching tasks after `after`, in the order of the filter, and the place of the last task that was read, if
    /// there may be more after it.
    async fn list(&self, order: message::ListOrder) -> Result<message::Listed, EngineError>;
}

impl BrokerEngine {
    fn start<J: Journal>(
        state: QueueState,
        journal: J,
        client: StoreClient,
        runtime: Arc<dyn Runtime>,
        config: BrokerConfig,
        archive: Option<Arc<dyn Archive>>,
    ) -> Self {
        let (outbox, inbox) = lanes(&config);
        let ended = Arc::new(OnceLock::new());
        let (dropped, dropped_ids) = mpsc::unbounded_channel();
        let links = LoopLinks {
            inbox,
            ended: Arc::clone(&ended),
            dropped,
        };
        let commits = CommitLoop::new(
            state,
            journal,
            client.clone(),
            Arc::clone(&runtime),
            &config,
            links,
        );
        let watchers = commits.watchers();
        runtime.spawn(Box::pin(commits.run()));
        let shared = Arc::new(EngineShared {
            outbox,
            client,
            runtime,
            config,
            ended,
            archive,
            watchers,
            payload_guards: PayloadGuards::default(),
            kept_inputs: KeptInputs::default(),
            workers: WorkerRecords::default(),
        });
        let weak = Arc::downgrade(&shared);
        let removal = payload_removal::remove_dropped(dropped_ids, weak.clone());
        shared.runtime.spawn(Box::pin(removal));
        let cleanup = worker_cleanup::remove_dead_workers(weak);
        shared.runtime.spawn(Box::pin(cleanup));
        Self { shared }
    }

    /// The client of the store.
    pub fn client(&self) -> &StoreClient {
        &self.shared.client
    }

    /// Ends expired leases and reads what other processes wrote, without waiting for the next interval.
    pub async fn maintain(&self) -> Result<(), EngineError> {
        self.call(Message::Maintain, ()).await
    }

    /// Waits until the engine has ended, because it was closed, replaced, or failed, and returns the reason.
    pub async fn ended(&self) -> EngineError {
        self.shared.outbox.closed().await;
        // The reason is set once all writes in flight have finished.
        for _ in 0..END_POLLS_MAX {
            if self.shared.ended.get().is_some() {
                break;
            }
            self.runtime().sleep(END_POLL_INTERVAL).await;
        }
        self.end_reason()
    }

    fn runtime(&self) -> &dyn Runtime {
        self.shared.runtime.as_ref()
    }

    fn config(&self) -> &BrokerConfig {
        &self.shared.config
    }

    fn new_op(&self) -> OpId {
        self.runtime().new_op_id()
    }

    /// Sends a message to the loop and waits for its response, which comes when everything that it depends on is durable.
    async fn call<Q, R>(
        &self,
        message: fn(Call<Q, R>) -> Message,
        request: Q,
    ) -> Result<R, EngineError> {
        let (call, response) = Call::new(request);
        let queued = QueuedMessage {
            sent_at: Some(self.runtime().monotonic()),
            ..QueuedMessage::from(message(call))
        };
        if !self.shared.outbox.send(queued).await? {
            return Err(self.end_reason());
        }
        response.await.unwrap_or_else(|_| Err(self.end_reason()))
    }

    fn end_reason(&self) -> EngineError {
        self.shared
            .ended
            .get()
            .cloned()
            .unwrap_or(EngineError::Closed)
    }

    async fn read(&self, id: TaskId) -> Result<Task, EngineError> {
        let task = self.call(Message::Get, id).await?;
        Ok(Arc::unwrap_or_clone(task))
    }
}

impl fmt::Debug for BrokerEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerEngine")
            .field("config", &self.shared.config)
            .field("ended", &self.shared.ended.get())
            .finish_non_exhaustive()
    }
}
