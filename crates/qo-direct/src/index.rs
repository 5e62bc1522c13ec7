//! Which index entries a task should have.

use qo_core::keys::{IndexEntry, Key};
use qo_core::{Status, Task, Timestamp};

/// The entry that makes a running task found when its lease runs out.
pub(super) fn lease_key(task: &Task) -> Option<Key> {
    let minute = task.lease_expires_at?.minute();
    (task.status == Status::Running).then_some(Key::Lease {
        minute,
        id: task.id,
        attempt: task.attempt,
    })
}

/// The entry that makes a pending task found when it is due.
pub(super) fn pending_key(task: &Task, now: Timestamp) -> Option<Key> {
    (task.status == Status::Pending).then(|| IndexEntry::of(task).key(now))
}

/// Every entry that a task in this state may have. One that is due has left the later index: whoever moved its entry sees to
/// that.
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

/// The entries of a task that are no longer true after a change.
pub(super) fn stale_keys(before: &Task, after: &Task, now: Timestamp) -> Vec<Key> {
    let kept = lease_key(after);
    all_keys(before, now)
        .into_iter()
        .filter(|key| kept.as_ref() != Some(key))
        .collect()
}
