//! Why a handler did not do what was asked, and what follows from it.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use qo_core::limits::{ERROR_MAX_BYTES, cut_text};

/// How many sources of an error are told, so that a chain that bites its own tail ends.
const SOURCES_MAX: usize = 16;

/// Why a handler did not do what was asked.
///
/// Any error becomes a retryable one by `?`, with the chain of its sources in the text. It is no [`std::error::Error`] itself,
/// because that would forbid this.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskError {
    /// It may go well next time: the task is retried while it has retries left.
    Retryable(String),
    /// It will never go well: the task has failed.
    Permanent(String),
    /// It took too long; it may go well next time.
    Timeout,
    /// It cannot be done yet. The task comes back after this time, which is not counted against its retries.
    Snooze(Duration),
    /// It was called off.
    Cancelled,
}

impl TaskError {
    /// It may go well next time.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::Retryable(cut(&message.to_string()))
    }

    /// It will never go well.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::Permanent(cut(&message.to_string()))
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retryable(message) | Self::Permanent(message) => f.write_str(message),
            Self::Timeout => f.write_str("it took too long"),
            Self::Snooze(delay) => write!(f, "put off for {delay:?}"),
            Self::Cancelled => f.write_str("it was called off"),
        }
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::retryable(with_sources(&*error.into()))
    }
}

/// What an error says, and what its sources say that it does not say itself.
fn with_sources(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    for _ in 0..SOURCES_MAX {
        let Some(inner) = source else { break };
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = inner.source();
    }
    text
}

/// Cuts a text to what a task keeps of an error, so that a large one is not carried about.
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
    fn any_error_is_retryable_and_tells_its_sources() {
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
    fn texts_are_bounded() {
        let TaskError::Retryable(text) = TaskError::retryable("x".repeat(1_000_000)) else {
            panic!("a retryable error");
        };
        assert!(text.len() <= ERROR_MAX_BYTES);
    }
}
