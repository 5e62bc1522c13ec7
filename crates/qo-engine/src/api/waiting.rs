//! Why a pending task waits.

use std::fmt;

use qo_core::limit::LimitWait;
use qo_core::queue_state::WaitsBehind;
use qo_core::{Actor, Pause, PauseTarget, Pauses, QueueName, Task, TaskId, TaskType, Timestamp};
use serde::{Deserialize, Serialize};

/// What a pending task waits for, besides its due time and a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitReason {
    /// Another task with the same ordering key runs first.
    OrderingKey {
        /// The task at the head of the line.
        behind: TaskId,
        /// The number of tasks before the waiting one, counted up to 10,000.
        ahead: u64,
        /// Whether that task has failed and stops the key, until someone replays or cancels it.
        #[serde(default)]
        stopped: bool,
    },
    /// A limit has no room.
    Limit(LimitWait),
    /// Its queue or its type is paused.
    Paused {
        /// The queue, if it is the queue that is paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<QueueName>,
        /// Otherwise the type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task_type: Option<TaskType>,
        /// Since when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// Who paused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
        /// Why it was paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A reason that this version does not know.
    #[serde(other)]
    Unknown,
}

impl WaitReason {
    /// The pause that a pending task waits for, if there is one.
    pub fn of_pause(task: &Task, pauses: &Pauses) -> Option<Self> {
        let (target, pause) = pauses.stopping(&task.queue, &task.task_type)?;
        let Pause { since, by, reason } = pause.clone();
        let (queue, task_type) = match target {
            PauseTarget::Queue(queue) => (Some(queue), None),
            PauseTarget::Type(task_type) => (None, Some(task_type)),
        };
        Some(Self::Paused {
            queue,
            task_type,
            since,
            by,
            note: reason,
        })
    }
}

impl From<WaitsBehind> for WaitReason {
    fn from(waits: WaitsBehind) -> Self {
        Self::OrderingKey {
            behind: waits.head,
            ahead: waits.ahead,
            stopped: waits.is_stopped,
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OrderingKey {
                behind,
                stopped: true,
                ..
            } => write!(
                f,
                "behind {behind}, which failed and stops the ordering key; replay or cancel that task"
            ),
            Self::OrderingKey { behind, ahead, .. } => match ahead {
                0 | 1 => write!(f, "behind {behind}, which has the same ordering key"),
                ahead => write!(
                    f,
                    "behind {behind} and {} more with the same ordering key",
                    ahead - 1
                ),
            },
            Self::Limit(wait) => wait.fmt(f),
            Self::Paused {
                queue,
                task_type,
                by,
                note,
                ..
            } => {
                match (queue, task_type) {
                    (Some(queue), _) => write!(f, "queue {queue} is paused")?,
                    (None, Some(task_type)) => write!(f, "type {task_type} is paused")?,
                    (None, None) => f.write_str("it is paused")?,
                }
                if let Some(by) = by {
                    write!(f, " by {by}")?;
                }
                note.iter().try_for_each(|note| write!(f, ": {note}"))
            }
            Self::Unknown => f.write_str("for a reason that this version does not know"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_to_do() {
        let behind = TaskId::from_random(1);
        let waits = |ahead, stopped| WaitReason::OrderingKey {
            behind,
            ahead,
            stopped,
        };
        assert!(
            waits(1, false)
                .to_string()
                .starts_with(&format!("behind {behind}"))
        );
        assert!(waits(3, false).to_string().contains("and 2 more"));
        assert!(waits(3, true).to_string().contains("replay or cancel"));
        let full = r#"{"reason":"limit","limit":"stripe","bound":"concurrent","used":5,"max":5}"#;
        let read: WaitReason = serde_json::from_str(full).unwrap();
        assert_eq!(read.to_string(), "limit stripe: 5 of 5 running");
        assert_eq!(serde_json::to_string(&read).unwrap(), full);
        let full = r#"{"reason":"limit","limit":"stripe","bound":"starts","used":9,"max":9,"until":"2026-01-01T00:00:00.000Z"}"#;
        let read: WaitReason = serde_json::from_str(full).unwrap();
        assert_eq!(
            read.to_string(),
            "limit stripe: 9 of 9 started, the next at 2026-01-01T00:00:00.000Z"
        );
        let paused = r#"{"reason":"paused","queue":"mail","since":"2026-01-01T00:00:00.000Z","by":"ada","note":"the relay is down"}"#;
        let read: WaitReason = serde_json::from_str(paused).unwrap();
        assert_eq!(
            read.to_string(),
            "queue mail is paused by ada: the relay is down"
        );
        assert_eq!(serde_json::to_string(&read).unwrap(), paused);
        let read: WaitReason =
            serde_json::from_str(r#"{"reason":"paused","task_type":"send"}"#).unwrap();
        assert_eq!(read.to_string(), "type send is paused");
    }

    #[test]
    fn a_reason_of_a_later_version_is_read() {
        let read: WaitReason = serde_json::from_str(r#"{"reason":"moon","phase":3}"#).unwrap();
        assert_eq!(read, WaitReason::Unknown);
        let text = r#"{"reason":"ordering_key","behind":"550e8400-e29b-41d4-a716-446655440000","ahead":2}"#;
        let read: WaitReason = serde_json::from_str(text).unwrap();
        assert!(matches!(
            read,
            WaitReason::OrderingKey {
                ahead: 2,
                stopped: false,
                ..
            }
        ));
    }
}
