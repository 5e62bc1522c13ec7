//! What the handlers of a task's last attempts printed: the end of it, kept in the task's record.
//!
//! A log is written together with the outcome of its attempt, so it costs no request. It is for people to read. Its size is bounded,
//! because the record is read and written with every later change.

use serde::{Deserialize, Serialize};

use super::Task;
use crate::extra::Extra;
use crate::limits::{ATTEMPT_LOG_MAX_BYTES, ATTEMPT_LOGS_MAX, cut_front};
use crate::time::Timestamp;

/// The log of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptLog {
    /// The number of the attempt.
    pub attempt: u32,
    /// When the attempt ended.
    pub at: Timestamp,
    /// The end of what its handler printed.
    pub text: Box<str>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Task {
    /// The logs of the last attempts, oldest first.
    pub fn logs(&self) -> &[AttemptLog] {
        self.logs.as_deref().unwrap_or_default()
    }

    /// The task without its logs, for a response that has no room for them.
    #[must_use]
    pub fn without_logs(mut self) -> Self {
        self.logs = None;
        self
    }

    /// Adds the log of the current attempt. The oldest ones are dropped.
    pub(crate) fn push_log(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut logs = self.logs.take().map_or_else(Vec::new, Vec::from);
        logs.push(AttemptLog {
            attempt: self.attempt,
            at: self.updated_at,
            text: cut_front(text, ATTEMPT_LOG_MAX_BYTES),
            extra: Extra::default(),
        });
        let excess = logs.len().saturating_sub(ATTEMPT_LOGS_MAX);
        logs.drain(..excess);
        self.logs = Some(logs.into());
    }

    /// The size of the logs in the record.
    pub fn log_bytes(&self) -> usize {
        self.logs().iter().map(|log| log.text.len()).sum()
    }
}
