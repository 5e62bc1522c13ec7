//! Publishes the changes of tasks to listeners.
//!
//! An event is published after its operation is durable. The engine publishes all its changes in this process, including its own
//! maintenance. An engine that cannot, such as a client of another server, leaves it to this server to publish the operations of its
//! requests. Changes by other processes on the same store are not published. A slow listener misses events and learns how many; a
//! listener that must not miss any reads the tasks.

use std::sync::{Arc, OnceLock};

use qo::Task;
use qo_engine::watch::{Commit, TaskChange, Watcher};
use tokio::sync::broadcast;

use crate::app::AppState;

/// How many events a slow listener may lag behind.
const LAG_MAX: usize = 1_024;

pub(crate) struct Events {
    sender: broadcast::Sender<Arc<TaskChange>>,
    /// Whether the engine publishes its changes itself.
    engine_publishes: OnceLock<bool>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(LAG_MAX),
            engine_publishes: OnceLock::new(),
        }
    }
}

impl Events {
    /// Sets whether the engine publishes its changes itself.
    pub(crate) fn set_engine_publishes(&self, engine_publishes: bool) {
        self.engine_publishes.get_or_init(|| engine_publishes);
    }

    /// Publishes an operation of this server, unless the engine does.
    pub(crate) fn publish(&self, operation: &'static str, task: &Task) {
        let engine_publishes = self.engine_publishes.get().copied().unwrap_or(false);
        if !engine_publishes && self.has_listeners() {
            self.send(Arc::new(TaskChange::new(operation, task)));
        }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<TaskChange>> {
        self.sender.subscribe()
    }

    fn has_listeners(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn send(&self, change: Arc<TaskChange>) {
        // The listeners may have gone meanwhile.
        let _ = self.sender.send(change);
    }
}

impl Watcher for AppState {
    fn committed(&self, commit: &Commit) {
        self.metrics.committed(commit);
    }

    fn listens(&self) -> bool {
        self.events.has_listeners()
    }

    fn changed(&self, change: &Arc<TaskChange>) {
        self.events.send(Arc::clone(change));
    }
}
