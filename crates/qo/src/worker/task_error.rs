//! Errors of handlers.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use qo_core::limits::{ERROR_MAX_BYTES, cut_text};

/// Maximum number of sources in a message, in case a chain of sources is cyclic.
const SOURCES_MAX: usize = 16;

/// Error of a handler. The variant decides what happens to the task.
///
/// The `?` operator converts any error to [`TaskError::Retryable`], with its chain of sources in the message. Therefore `TaskError`
/// itself does not implement [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskError {
    /// Retries the task, if it has retries left.
    Retryable(String),
    /// Fails the task without a retry.
    Permanent(String),
    /// Retries the task, and records a timeout.
    Timeout,
    /// Runs the task again after this time, without using a retry.
    Snooze(Duration),
    /// Cancels the task.
    Cancelled,
}

impl TaskError {
    /// Creates an error that is retried.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::Retryable(cut(&message.to_string()))
    }

    /// Creates an error that fails the task without a retry.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::Permanent(cut(&message.to_string()))
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retryable(message) | Self::Permanent(message) => f.write_str(message),
            Self::Timeout => f.write_str("timed out"),
            Self::Snooze(delay) => write!(f, "snoozed for {delay:?}"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::retryable(with_sources(&*error.into()))
    }
}

/// The message of an error, with those of its sources that it does not already contain.
fn with_sources(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    for _ in 0..SOURCES_MAX {
        let Some(inner) = source else { break };
        let message = inner.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = inner.source();
    }
    text
}

/// Truncates a message to the length that a task stores.
fn cut(text: &str) -> String {
    cut_text(text, ERROR_MAX_BYTES).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the invoice was not sent")]
    struct Outer(#[source] std::num::ParseIntError);

    fn fails() -> Result<(), TaskError> {
        "x".parse::<u8>().map_err(Outer)?;
        Ok(())
    }

    #[test]
    fn any_error_is_retryable_and_includes_its_sources() {
        let text = "the invoice was not sent: invalid digit found in string".to_owned();
        assert_eq!(fails(), Err(TaskError::Retryable(text)));
        assert_eq!(
            TaskError::from("a plain text"),
            TaskError::retryable("a plain text")
        );
    }

    #[test]
    fn a_task_error_passes_through_the_question_mark() {
        let permanent = || -> Result<(), TaskError> {
            Err(TaskError::permanent("no such customer"))?;
            Ok(())
        };
        assert_eq!(permanent(), Err(TaskError::permanent("no such customer")));
    }

    #[test]
    fn messages_are_bounded() {
        let TaskError::Retryable(text) = TaskError::retryable("x".repeat(1_000_000)) else {
            panic!("a retryable error");
        };
        assert!(text.len() <= ERROR_MAX_BYTES);
    }
}
