//! The position of a task in the indexes, derived from its record.

use super::ready::ReadyPosition;
use crate::task::{Status, Task};
use crate::time::Timestamp;

/// The position of a task in the indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexPosition {
    pub(super) status: Status,
    /// Its position among the ready tasks. A task with an ordering key is there only while it is the head of its line.
    pub(super) ready: Option<ReadyPosition>,
    /// Its place in the line of its ordering key.
    pub(super) place: Option<u64>,
    pub(super) lease: Option<Timestamp>,
    pub(super) expiry: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
}

impl IndexPosition {
    pub(super) fn of(task: &Task) -> Self {
        let pending = task.status == Status::Pending;
        Self {
            status: task.status,
            ready: pending.then_some(ReadyPosition {
                priority: task.priority,
                available_at: task.available_at,
                sequence: task.sequence,
            }),
            place: task.place_in_line(),
            lease: task.lease_expires_at,
            expiry: task.pending_until().filter(|_| pending),
            ended: task
                .is_settled()
                .then_some(task.completed_at.unwrap_or(task.updated_at)),
        }
    }
}
