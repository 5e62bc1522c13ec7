//! The index entries that a task should have.

use qo_core::keys::{IndexEntry, Key};
use qo_core::{Status, Task, Timestamp};

/// The lease entry of a running task.
pub(super) fn lease_key(task: &Task) -> Option<Key> {
    let minute = task.lease_expires_at?.minute();
    (task.status == Status::Running).then_some(Key::Lease {
        minute,
        id: task.id,
        attempt: task.attempt,
    })
}

/// The ready or later entry of a pending task.
pub(super) fn pending_key(task: &Task, now: Timestamp) -> Option<Key> {
    (task.status == Status::Pending).then(|| IndexEntry::of(task).key(now))
}

/// All entries that a task in this state may have. A due task has no later entry: the process that promoted it deletes that entry.
pub(super) fn all_keys(task: &Task, now: Timestamp) -> Vec<Key> {
    match task.status {
        Status::Pending if task.available_at <= now => vec![Key::Ready(IndexEntry::of(task))],
        Status::Pending => vec![
            Key::Ready(IndexEntry::of(task)),
            Key::Later(IndexEntry::of(task)),
        ],
        Status::Running => lease_key(task).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The entries of a task that a change makes stale.
pub(super) fn stale_keys(before: &Task, after: &Task, now: Timestamp) -> Vec<Key> {
    // A task whose input is replaced keeps its entry.
    let kept = all_keys(after, now);
    all_keys(before, now)
        .into_iter()
        .filter(|key| !kept.contains(key))
        .collect()
}

/// How long a change may be under way, at most.
const CHANGE_MAX_MS: u64 = 120_000;

/// A lease entry that a task gets before it becomes pending again after it was finished, or moves to another queue, which perhaps nobody
/// served before. If the process dies before it writes the ready entry, the lease reaper finds a pending task behind this entry. It is for a
/// later minute, because the reaper must not find it before the swap.
pub(super) fn change_marker(before: &Task, after: &Task, now: Timestamp) -> Option<Key> {
    let is_revived = before.status.is_terminal() && after.status == Status::Pending;
    let is_moved = before.queue != after.queue;
    (is_revived || is_moved).then(|| Key::Lease {
        minute: now.plus_millis(CHANGE_MAX_MS).minute(),
        id: before.id,
        attempt: after.attempt,
    })
}
