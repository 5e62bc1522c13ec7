//! The history of a task: a bounded list of events that the task's record carries.
//!
//! The list needs no versioned bucket and costs no request. Each event keeps the operation id of its change, so that the author of a
//! write whose response was lost still recognises it after others have changed the record.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Status;
use crate::extra::Extra;
use crate::id::OpId;
use crate::limits::EVENTS_MAX;
use crate::names::{Actor, WorkerId};
use crate::time::Timestamp;

/// One change of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredEvent")]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What happened. Absent in records of versions that did not write it, and for actions of later versions, which stay in `extra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<EventAction>,
    /// The status before; absent for the submit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Status>,
    /// The status after.
    pub to: Status,
    /// The number of the attempt that it belongs to; 0 before the first.
    pub attempt: u32,
    /// The worker of that attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The error or the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
    /// The operation that made the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// Who requested it, if an operator did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<Actor>>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventAction {
    /// It was submitted.
    Submitted = 0,
    /// A worker claimed it.
    Claimed = 1,
    /// Its attempt succeeded.
    Completed = 2,
    /// Its attempt failed.
    Failed = 3,
    /// Its worker returned it to the queue.
    Released = 4,
    /// Its worker delayed it.
    Snoozed = 5,
    /// The lease of its attempt expired.
    LeaseExpired = 6,
    /// It expired before a worker claimed it.
    Expired = 7,
    /// It was cancelled.
    Cancelled = 8,
    /// A cancel of the running attempt was requested.
    CancelRequested = 9,
    /// It was made due.
    RunNow = 10,
    /// It was started over.
    Replayed = 11,
    /// It was archived.
    Archived = 12,
    /// Its archive was undone.
    Unarchived = 13,
    /// Another submit with its key replaced its input, or postponed it.
    Amended = 14,
    /// It was moved to another queue.
    Redriven = 15,
}

impl EventAction {
    /// All actions.
    pub const ALL: [Self; 16] = [
        Self::Submitted,
        Self::Claimed,
        Self::Completed,
        Self::Failed,
        Self::Released,
        Self::Snoozed,
        Self::LeaseExpired,
        Self::Expired,
        Self::Cancelled,
        Self::CancelRequested,
        Self::RunNow,
        Self::Replayed,
        Self::Archived,
        Self::Unarchived,
        Self::Amended,
        Self::Redriven,
    ];

    /// Its name in records and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Snoozed => "snoozed",
            Self::LeaseExpired => "lease_expired",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::CancelRequested => "cancel_requested",
            Self::RunNow => "run_now",
            Self::Replayed => "replayed",
            Self::Archived => "archived",
            Self::Unarchived => "unarchived",
            Self::Amended => "amended",
            Self::Redriven => "redriven",
        }
    }

    /// The action of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// An event as it is stored: its action may be one that this version does not know.
#[derive(Deserialize)]
struct StoredEvent {
    at: Timestamp,
    #[serde(default)]
    action: Option<Value>,
    #[serde(default)]
    from: Option<Status>,
    to: Status,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    worker: Option<WorkerId>,
    #[serde(default)]
    error: Option<Box<str>>,
    #[serde(default)]
    op_id: Option<OpId>,
    #[serde(default)]
    by: Option<Value>,
    #[serde(flatten)]
    extra: Extra,
}

impl From<StoredEvent> for Event {
    fn from(stored: StoredEvent) -> Self {
        let mut extra = stored.extra;
        let action = stored.action.and_then(|value| {
            let known = value.as_str().and_then(EventAction::from_name);
            if known.is_none() {
                extra.insert("action", value);
            }
            known
        });
        // An old version kept any value as an unknown field.
        let by = stored.by.and_then(|value| {
            let known = value.as_str().and_then(|text| Actor::new(text).ok());
            if known.is_none() {
                extra.insert("by", value);
            }
            known.map(Box::new)
        });
        Self {
            at: stored.at,
            action,
            from: stored.from,
            to: stored.to,
            attempt: stored.attempt,
            worker: stored.worker,
            error: stored.error,
            op_id: stored.op_id,
            by,
            extra,
        }
    }
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

    /// Adds the newest event and returns the number of old ones that were dropped for it.
    pub(crate) fn push(&mut self, event: Event) -> u64 {
        let excess = (self.0.len() + 1).saturating_sub(EVENTS_MAX);
        self.0.drain(..excess);
        // Most tasks see three events. Growing one at a time keeps a million waiting tasks small.
        self.0.reserve_exact(1);
        self.0.push(event);
        excess as u64
    }

    /// The events, for [`Task::reveal_errors`](super::Task::reveal_errors).
    pub(super) fn as_mut_slice(&mut self) -> &mut [Event] {
        &mut self.0
    }
}

impl std::ops::Deref for History {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_stored_form() {
        for action in EventAction::ALL {
            let stored = serde_json::to_value(action).unwrap();
            assert_eq!(stored, Value::from(action.name()));
            assert_eq!(EventAction::from_name(action.name()), Some(action));
        }
    }

    #[test]
    fn an_event_without_an_action_round_trips() {
        let text = r#"{"at":"2026-11-16T10:00:00.000Z","to":"pending","attempt":0}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.action, None);
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }

    #[test]
    fn an_actor_is_read_and_any_other_value_survives() {
        let text = |by: &str| {
            format!(r#"{{"at":"2026-11-16T10:00:00.000Z","to":"pending","attempt":0,"by":{by}}}"#)
        };
        let named: Event = serde_json::from_str(&text("\"ada@laptop\"")).unwrap();
        assert_eq!(named.by.as_deref().map(Actor::as_str), Some("ada@laptop"));
        assert_eq!(
            serde_json::to_string(&named).unwrap(),
            text("\"ada@laptop\"")
        );
        let other: Event = serde_json::from_str(&text("{\"id\":7}")).unwrap();
        assert_eq!(other.by, None);
        assert_eq!(serde_json::to_string(&other).unwrap(), text("{\"id\":7}"));
    }

    #[test]
    fn an_action_of_a_later_version_survives_a_rewrite() {
        let text =
            r#"{"at":"2026-11-16T10:00:00.000Z","to":"pending","attempt":0,"action":"teleported"}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.action, None);
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }
}
