//! What happened to a task: a bounded list that the task carries itself.
//!
//! The list needs no versioned bucket, costs no request, and keeps the operation id of each change, so that the author of a
//! write whose answer was lost still recognises it after others have built upon it.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::extra::Extra;
use crate::id::OpId;
use crate::limits::EVENTS_MAX;
use crate::names::WorkerId;
use crate::time::Timestamp;

/// One change of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// The status before; absent for the submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Status>,
    /// The status after.
    pub to: Status,
    /// The attempt that it belongs to; 0 before the first.
    #[serde(default)]
    pub attempt: u32,
    /// The worker that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// What went wrong, or why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
    /// The operation that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The newest events of a task, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(Vec<Event>);

impl History {
    /// Events that were stored, oldest first.
    pub(super) fn of(events: Vec<Event>) -> Self {
        Self(events)
    }

    /// Adds the newest event and returns how many old ones had to go.
    pub(crate) fn push(&mut self, event: Event) -> u64 {
        let excess = (self.0.len() + 1).saturating_sub(EVENTS_MAX);
        self.0.drain(..excess);
        // Most tasks see three events. Growing one at a time keeps a million waiting tasks small.
        self.0.reserve_exact(1);
        self.0.push(event);
        excess as u64
    }
}

impl std::ops::Deref for History {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.0
    }
}
