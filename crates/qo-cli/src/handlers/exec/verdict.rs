//! What the end of a command means for its task.
//!
//! | exit code | the attempt |
//! | --- | --- |
//! | 0 | succeeded; standard output is the task's output |
//! | 64 (`EX_USAGE`), 65 (`EX_DATAERR`), 78 (`EX_CONFIG`) | failed for good: trying again cannot help |
//! | 75 (`EX_TEMPFAIL`) | failed, and is retried; after a line `::snooze DURATION` it is put off instead, not counted as a retry |
//! | any other, or a signal | failed, and is retried, as after a crash |
//!
//! The words are those of `sysexits.h`. A command that cannot be found (127) or started (126) is retried too: that is a fault of the worker's
//! machine, and no reason to give up the tasks of a whole queue.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use qo::{Json, TaskError};

use crate::handlers::answer::{error_text, output, printable};

/// What the end of a command means.
pub(super) fn verdict(
    status: ExitStatus,
    printed: &[u8],
    said: &[u8],
    snooze: Option<Duration>,
) -> Result<Option<Json>, TaskError> {
    let said = printable(said);
    let text = |what: &str| error_text(what, &said);
    match status.code() {
        Some(0) => Ok(output(printed)),
        Some(75) => match snooze {
            Some(duration) => Err(TaskError::Snooze(duration)),
            None => Err(TaskError::retryable(text("exit code 75 (try again later)"))),
        },
        Some(64) => Err(TaskError::permanent(text("exit code 64 (wrong usage)"))),
        Some(65) => Err(TaskError::permanent(text("exit code 65 (bad input)"))),
        Some(78) => Err(TaskError::permanent(text(
            "exit code 78 (wrong configuration)",
        ))),
        Some(126) => Err(TaskError::retryable(text(
            "exit code 126 (cannot be executed)",
        ))),
        Some(127) => Err(TaskError::retryable(text(
            "exit code 127 (command not found)",
        ))),
        Some(code) => Err(TaskError::retryable(text(&format!("exit code {code}")))),
        None => Err(TaskError::retryable(text(&killed(status)))),
    }
}

fn killed(status: ExitStatus) -> String {
    match status.signal() {
        Some(9) => "killed by signal 9 (KILL; when memory runs out the system sends it)".to_owned(),
        Some(signal) => format!("killed by signal {signal}"),
        None => "ended without an exit code".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> Result<Option<Json>, TaskError> {
        verdict(ExitStatus::from_raw(code << 8), b"42\n", b"why\n", None)
    }

    #[test]
    fn exit_codes_mean_what_the_table_says() {
        assert_eq!(exit(0).unwrap().unwrap().as_str(), "42");
        for code in [64, 65, 78] {
            let Err(TaskError::Permanent(text)) = exit(code) else {
                panic!("{code}")
            };
            assert!(text.starts_with(&format!("exit code {code} (")), "{text}");
            assert!(text.ends_with(": why"), "{text}");
        }
        for code in [1, 2, 63, 66, 70, 75, 77, 100, 126, 127, 255] {
            let Err(TaskError::Retryable(text)) = exit(code) else {
                panic!("{code}")
            };
            assert!(text.starts_with(&format!("exit code {code}")), "{text}");
        }
    }

    #[test]
    fn a_snooze_needs_exit_code_75() {
        let wish = Some(Duration::from_secs(5));
        let end = |code: i32| verdict(ExitStatus::from_raw(code << 8), b"", b"", wish);
        assert!(matches!(end(75), Err(TaskError::Snooze(duration)) if duration.as_secs() == 5));
        assert!(matches!(end(1), Err(TaskError::Retryable(_))));
        assert!(matches!(end(0), Ok(None)));
    }

    #[test]
    fn signals_are_retried() {
        let Err(TaskError::Retryable(text)) = verdict(ExitStatus::from_raw(11), b"", b"x", None)
        else {
            panic!("a signal is retryable")
        };
        assert_eq!(text, "killed by signal 11: x");
    }
}
