//! How many attempts run at once, and which.

use std::collections::BTreeMap;
use std::sync::Arc;

use qo_core::{TaskId, Timestamp};
use tokio::sync::watch;

/// The places for attempts. Clones share them.
#[derive(Clone)]
pub(super) struct Slots {
    total: usize,
    free: Arc<watch::Sender<usize>>,
}

/// One place, free again when the last clone is dropped. The supervisor of an attempt holds one and its handler another: a handler
/// that blocks a thread after its attempt is over still takes up room.
#[derive(Clone)]
pub(super) struct Slot {
    _place: Arc<Place>,
}

struct Place {
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

    /// How many are free.
    pub(super) fn free(&self) -> usize {
        *self.free.borrow()
    }

    /// Waits until at least so many are free.
    pub(super) async fn wait_for(&self, count: usize) {
        let mut free = self.free.subscribe();
        // An error means that the sender is gone, which lives as long as this.
        let _ = free.wait_for(|free| *free >= count).await;
    }

    /// Takes one. Only one caller of a run takes, and only after it has seen that there is one.
    pub(super) fn take(&self) -> Slot {
        self.free.send_modify(|free| *free = free.saturating_sub(1));
        Slot {
            _place: Arc::new(Place {
                free: Arc::clone(&self.free),
            }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.free.send_modify(|free| *free += 1);
    }
}

/// An attempt, among all that run. A task can be there twice: its old attempt is being stopped, and it was claimed again.
type Entry = (TaskId, u32);

/// The attempts that have a supervisor. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Running {
    attempts: Arc<watch::Sender<BTreeMap<Entry, Timestamp>>>,
}

/// An attempt that has a supervisor, until this is dropped.
pub(super) struct Registered {
    running: Running,
    entry: Entry,
}

impl Running {
    pub(super) fn register(&self, id: TaskId, attempt: u32, since: Timestamp) -> Registered {
        let entry = (id, attempt);
        self.attempts.send_modify(|attempts| {
            attempts.insert(entry, since);
        });
        Registered {
            running: self.clone(),
            entry,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.attempts.borrow().len()
    }

    /// The tasks, the one that has run for longest first.
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

    /// Waits until at most so many are left.
    pub(super) async fn wait_for(&self, count: usize) {
        let mut attempts = self.attempts.subscribe();
        // An error means that the sender is gone, which lives as long as this.
        let _ = attempts.wait_for(|attempts| attempts.len() <= count).await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.running.attempts.send_modify(|attempts| {
            attempts.remove(&self.entry);
        });
    }
}
