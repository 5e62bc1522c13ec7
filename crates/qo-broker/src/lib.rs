//! Broker mode: the whole queue in memory, made durable in groups.
//!
//! One process holds a [`QueueState`] and changes it by commands, in order, in one loop ([`commit`]). The changes of all
//! callers that come at about the same time are made durable with one write, by a [`journal`]:
//!
//! - [`json`]: one readable JSON object, changed by compare-and-swap. Any number of processes may share it.
//! - `slate`, with the feature of that name: SlateDB on the same object store. One process at a time, and few requests a task.
//!
//! The loop knows nothing of objects, and the journals nothing of callers. `docs/internals/broker-mode.md` has the protocols of both, with
//! what a crash after each step leaves behind.

mod apply;
mod commit;
mod config;
pub mod election;
mod engine_impl;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod journal;
mod json;
mod message;
mod notify;
mod payloads;
#[cfg(feature = "slate")]
mod slate;

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

use self::commit::CommitLoop;
use self::journal::Journal;
use self::message::{Call, Message, QueuedMessage};

/// How often, and how far apart, [`BrokerEngine::ended`] looks for the reason of an end.
const END_LOOKS_MAX: usize = 500;
const END_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The engine of broker mode. Clones share everything.
#[derive(Clone)]
pub struct BrokerEngine {
    shared: Arc<Shared>,
}

struct Shared {
    messages: mpsc::Sender<QueuedMessage>,
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    config: BrokerConfig,
    /// Why the loop has ended.
    ended: Arc<OnceLock<EngineError>>,
    /// Where tasks are that have come to their end, if they are not in the state.
    archive: Option<Arc<dyn Archive>>,
    watchers: Watchers,
}

/// Tasks that have come to their end and are no longer in the state.
#[async_trait::async_trait]
trait Archive: Send + Sync {
    /// The first `limit` tasks after `after` that match, in the order of their ids, and the last one that was looked at, if
    /// there may be more behind it.
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
        let (messages, receiver) = mpsc::channel(config.queue_max.max(1));
        let ended = Arc::new(OnceLock::new());
        let commits = CommitLoop::new(
            state,
            journal,
            client.clone(),
            Arc::clone(&runtime),
            &config,
            receiver,
            Arc::clone(&ended),
        );
        let watchers = commits.watchers();
        runtime.spawn(Box::pin(commits.run()));
        Self {
            shared: Arc::new(Shared {
                messages,
                client,
                runtime,
                config,
                ended,
                archive,
                watchers,
            }),
        }
    }

    /// The client of the store.
    pub fn client(&self) -> &StoreClient {
        &self.shared.client
    }

    /// Puts right what the dead left behind, and takes in what others wrote, without waiting for the time to do so.
    pub async fn tend(&self) -> Result<(), EngineError> {
        self.call(Message::Tend, ()).await
    }

    /// Waits until the engine is over, because it was closed, replaced, or cannot go on, and says why.
    pub async fn ended(&self) -> EngineError {
        self.shared.messages.closed().await;
        // The reason is known once what was on its way has landed.
        for _ in 0..END_LOOKS_MAX {
            if self.shared.ended.get().is_some() {
                break;
            }
            self.runtime().sleep(END_LOOK_INTERVAL).await;
        }
        self.why_ended()
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

    /// Sends a message to the loop and waits for its response, which comes when everything that it rests on is durable.
    async fn call<Q, R>(
        &self,
        message: fn(Call<Q, R>) -> Message,
        request: Q,
    ) -> Result<R, EngineError> {
        let (call, response) = Call::new(request);
        let queued = QueuedMessage::from(message(call));
        if self.shared.messages.send(queued).await.is_err() {
            return Err(self.why_ended());
        }
        response.await.unwrap_or_else(|_| Err(self.why_ended()))
    }

    fn why_ended(&self) -> EngineError {
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
