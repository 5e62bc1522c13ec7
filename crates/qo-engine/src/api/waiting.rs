//! Why a pending task waits although it is due.

use std::fmt;

use qo_core::TaskId;
use qo_core::limit::LimitWait;
use qo_core::queue_state::WaitsBehind;
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
    /// A reason that this version does not know.
    #[serde(other)]
    Unknown,
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
