//! The status of a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waiting to be claimed.
    Pending,
    /// An attempt is in progress.
    Running,
    /// Succeeded.
    Completed,
    /// Failed permanently: the dead letter state.
    Failed,
    /// Archived after it finished.
    Archived,
    /// Cancelled or expired.
    Cancelled,
}

/// A text that is not a status.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a status: use pending, running, completed, failed, archived or cancelled")]
pub struct UnknownStatus {
    text: String,
}

impl Status {
    /// Every status, in life cycle order.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Archived,
    ];

    /// Whether the task is finished. It then changes only on request: replay, redrive, archive, unarchive, or a cancel if it stops its ordering key.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }

    /// The status in its stored and displayed form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Archived => "archived",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| UnknownStatus {
                text: text.chars().take(64).collect(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_equals_the_stored_form() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(
                serde_json::to_string(&status).unwrap(),
                format!("\"{status}\"")
            );
        }
        assert!("Pending".parse::<Status>().is_err());
    }
}
