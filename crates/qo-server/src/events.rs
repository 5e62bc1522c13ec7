//! What happens to tasks, told to whoever listens.
//!
//! An event is told after its operation is durable. The engine tells all that happens through it in this process, its own
//! maintenance included; where it cannot, as one that only speaks to another server, what passes through this server is told here. What
//! other processes do on the same store is not seen. A listener that is too slow misses events and is told how many; one
//! that must not miss any reads the tasks.

use std::sync::{Arc, OnceLock};

use qo::Task;
use qo_engine::watch::{Commit, TaskChange, Watcher};
use tokio::sync::broadcast;

use crate::app::Shared;

/// How many events a slow listener may be behind.
const BEHIND_MAX: usize = 1_024;

pub(crate) struct Events {
    sender: broadcast::Sender<Arc<TaskChange>>,
    /// Whether the engine tells by itself.
    told_by_engine: OnceLock<bool>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BEHIND_MAX),
            told_by_engine: OnceLock::new(),
        }
    }
}

impl Events {
    /// Notes whether the engine tells by itself.
    pub(crate) fn set_told_by_engine(&self, told: bool) {
        self.told_by_engine.get_or_init(|| told);
    }

    /// Tells what passed through here, where the engine does not.
    pub(crate) fn tell(&self, operation: &'static str, task: &Task) {
        let told_by_engine = self.told_by_engine.get().copied().unwrap_or(false);
        // Nothing is made that nobody hears.
        if !told_by_engine && self.is_heard() {
            self.send(Arc::new(TaskChange::new(operation, task)));
        }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<TaskChange>> {
        self.sender.subscribe()
    }

    fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn send(&self, change: Arc<TaskChange>) {
        // Whoever listened may have gone meanwhile.
        let _ = self.sender.send(change);
    }
}

impl Watcher for Shared {
    fn committed(&self, commit: &Commit) {
        self.metrics.committed(commit);
    }

    fn listens(&self) -> bool {
        self.events.is_heard()
    }

    fn changed(&self, change: &Arc<TaskChange>) {
        self.events.send(Arc::clone(change));
    }
}
