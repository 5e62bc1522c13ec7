//! How a command's exit status maps to the result of the attempt.
//!
//! | exit code | result |
//! | --- | --- |
//! | 0 | success; standard output is the task's output |
//! | 64 (`EX_USAGE`), 65 (`EX_DATAERR`), 78 (`EX_CONFIG`) | permanent failure: a retry cannot help |
//! | 75 (`EX_TEMPFAIL`) | retried; after a line `::snooze DURATION` the task is snoozed instead, which does not count as a retry |
//! | any other, or a signal | retried |
//!
//! The codes are those of `sysexits.h`. A command that cannot be found (127) or executed (126) is retried too: the fault is in the
//! worker's machine, and should not fail all tasks of a queue.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use qo::{Json, TaskError};

use crate::handlers::output::{error_text, output, printable};

/// The result of an attempt whose command has exited.
pub(super) fn attempt_result(
    status: ExitStatus,
    stdout: &[u8],
    stderr: &[u8],
    snooze: Option<Duration>,
) -> Result<Option<Json>, TaskError> {
    let stderr = printable(stderr);
    let text = |summary: &str| error_text(summary, &stderr);
    match status.code() {
        Some(0) => Ok(output(stdout)),
        Some(75) => match snooze {
            Some(duration) => Err(TaskError::Snooze(duration)),
            None => Err(TaskError::retryable(text("exit code 75 (try again later)"))),
        },
        Some(64) => Err(TaskError::permanent(text("exit code 64 (usage error)"))),
        Some(65) => Err(TaskError::permanent(text("exit code 65 (bad input)"))),
        Some(78) => Err(TaskError::permanent(text(
            "exit code 78 (configuration error)",
        ))),
        Some(126) => Err(TaskError::retryable(text("exit code 126 (cannot execute)"))),
        Some(127) => Err(TaskError::retryable(text(
            "exit code 127 (command not found)",
        ))),
        Some(code) => Err(TaskError::retryable(text(&format!("exit code {code}")))),
        None => Err(TaskError::retryable(text(&killed(status)))),
    }
}

fn killed(status: ExitStatus) -> String {
    match status.signal() {
        Some(9) => "killed by signal 9 (KILL; the system sends it when memory runs out)".to_owned(),
        Some(signal) => format!("killed by signal {signal}"),
        None => "exited without an exit code".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> Result<Option<Json>, TaskError> {
        attempt_result(ExitStatus::from_raw(code << 8), b"42\n", b"why\n", None)
    }

    #[test]
    fn exit_codes_map_as_documented() {
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
        let snooze = Some(Duration::from_secs(5));
        let end = |code: i32| attempt_result(ExitStatus::from_raw(code << 8), b"", b"", snooze);
        assert!(matches!(end(75), Err(TaskError::Snooze(duration)) if duration.as_secs() == 5));
        assert!(matches!(end(1), Err(TaskError::Retryable(_))));
        assert!(matches!(end(0), Ok(None)));
    }

    #[test]
    fn signals_are_retried() {
        let Err(TaskError::Retryable(text)) =
            attempt_result(ExitStatus::from_raw(11), b"", b"x", None)
        else {
            panic!("a signal is retryable")
        };
        assert_eq!(text, "killed by signal 11: x");
    }
}
