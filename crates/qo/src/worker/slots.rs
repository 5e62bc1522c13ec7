//! The number of concurrent attempts, and which attempts run.

use std::collections::BTreeMap;
use std::sync::Arc;

use qo_core::{TaskId, Timestamp};
use tokio::sync::watch;

/// Slots for attempts. Clones share them.
#[derive(Clone)]
pub(super) struct Slots {
    total: usize,
    free: Arc<watch::Sender<usize>>,
}

/// A slot, free again when the last clone is dropped. The supervisor of an attempt holds one clone and its handler another: a
/// handler that blocks a thread after its attempt ended still occupies the slot.
#[derive(Clone)]
pub(super) struct Slot {
    _permit: Arc<SlotPermit>,
}

struct SlotPermit {
    free: Arc<watch::Sender<usize>>,
}

impl Slots {
    pub(super) fn new(total: usize) -> Self {
        Self {
            total,
            free: Arc::new(watch::Sender::new(total)),
        }
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Number of free slots.
    pub(super) fn free(&self) -> usize {
        *self.free.borrow()
    }

    /// Waits until at least `count` slots are free.
    pub(super) async fn wait_for(&self, count: usize) {
        let mut free = self.free.subscribe();
        // Fails only if the sender is gone, and `self` holds it.
        let _ = free.wait_for(|free| *free >= count).await;
    }

    /// Takes a slot. The only caller checks first that one is free.
    pub(super) fn take(&self) -> Slot {
        self.free.send_modify(|free| *free = free.saturating_sub(1));
        Slot {
            _permit: Arc::new(SlotPermit {
                free: Arc::clone(&self.free),
            }),
        }
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        self.free.send_modify(|free| *free += 1);
    }
}

/// A task and its attempt number. One task can have two attempts here, if it was claimed again while the old one stops.
type AttemptKey = (TaskId, u32);

/// The running attempts. Clones share them.
#[derive(Clone, Default)]
pub(super) struct RunningAttempts {
    attempts: Arc<watch::Sender<BTreeMap<AttemptKey, Timestamp>>>,
}

/// Removes an attempt from the running ones when dropped.
pub(super) struct AttemptGuard {
    running: RunningAttempts,
    key: AttemptKey,
}

impl RunningAttempts {
    pub(super) fn register(&self, id: TaskId, attempt: u32, since: Timestamp) -> AttemptGuard {
        let key = (id, attempt);
        self.attempts.send_modify(|attempts| {
            attempts.insert(key, since);
        });
        AttemptGuard {
            running: self.clone(),
            key,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.attempts.borrow().len()
    }

    /// The running tasks, the longest-running first.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        let mut tasks: Vec<_> = self
            .attempts
            .borrow()
            .iter()
            .map(|((id, _), since)| (*since, *id))
            .collect();
        tasks.sort();
        tasks.into_iter().map(|(_, id)| id).collect()
    }

    /// Waits until at most `count` attempts run.
    pub(super) async fn wait_for(&self, count: usize) {
        let mut attempts = self.attempts.subscribe();
        // Fails only if the sender is gone, and `self` holds it.
        let _ = attempts.wait_for(|attempts| attempts.len() <= count).await;
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        self.running.attempts.send_modify(|attempts| {
            attempts.remove(&self.key);
        });
    }
}
