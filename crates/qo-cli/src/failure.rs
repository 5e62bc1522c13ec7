//! Failures of commands and their exit codes.
//!
//! This is the only place where errors become exit codes. The table is also in `docs/reference/cli.md` and in `qo help`.

use std::fmt;
use std::io;

use qo::encryption::EncryptionError;
use qo::{EngineError, Error, ErrorKind, Rejection, StoreError};
use qo_store::open::{CheckError, OpenError};
use qo_store::probe::ProbeError;
use serde::Serialize;

/// A failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind, which determines the exit code.
    pub kind: FailureKind,
    /// What happened and why.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// An exit code that replaces that of the kind: the one of a program that was run.
    pub exit_code: Option<u8>,
    /// Whether it has nothing to do with the store and its credentials: a missing key, for example.
    pub is_local: bool,
}

/// The kind of a failure. JSON uses the variant's name in `snake_case`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Any other failure, or failures of several kinds.
    Other,
    /// The arguments or the input are invalid.
    BadInput,
    /// The task does not exist, or no task matches.
    NotFound,
    /// The status of the task does not allow the operation, or concurrent changes prevent it.
    Conflict,
    /// The lease is no longer current.
    LeaseLost,
    /// The store is unreachable or overloaded.
    Unavailable,
    /// The credentials are missing or rejected.
    Denied,
    /// The time limit passed.
    Timeout,
    /// The awaited task failed or was cancelled.
    TaskFailed,
    /// The store or its settings lack a required feature.
    Unsupported,
    /// Stored data is damaged.
    Damaged,
    /// The queue has as many waiting tasks as its settings allow.
    QueueFull,
    /// Interrupted by the user.
    Interrupted,
    /// The reader of the output has closed it. This does not count as a failure.
    OutputClosed,
}

impl FailureKind {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Other => 1,
            Self::BadInput => 2,
            Self::NotFound => 3,
            Self::Conflict | Self::LeaseLost => 4,
            Self::Unavailable => 5,
            Self::Denied => 6,
            Self::Timeout => 7,
            Self::TaskFailed => 8,
            Self::Unsupported | Self::Damaged => 9,
            Self::QueueFull => 10,
            Self::Interrupted => 130,
        }
    }
}

impl From<ErrorKind> for FailureKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadInput => Self::BadInput,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::LeaseLost => Self::LeaseLost,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::Damaged => Self::Damaged,
            ErrorKind::QueueFull => Self::QueueFull,
            _ => Self::Other,
        }
    }
}

/// The exit codes, as the help and the documentation show them.
pub const EXIT_CODES: &str = "  0    success
  1    any other failure, or failures of several kinds
  2    invalid usage or input
  3    not found: the task does not exist, or no task matches
  4    conflict: wrong task status, lost lease, or paused queue or type
  5    unavailable: the store is unreachable or throttles requests
  6    denied: missing or rejected credentials
  7    timeout while waiting
  8    the awaited task failed or was cancelled
  9    the store lacks a required feature, is not safe to use, or contains damaged data
  10   the queue is full: it has its maximum number of waiting tasks
  130  interrupted";

impl Failure {
    /// Creates a failure.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            exit_code: None,
            is_local: false,
        }
    }

    /// Creates a failure due to invalid input.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self::new(FailureKind::BadInput, message)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the exit code.
    #[must_use]
    pub fn exit_code(mut self, code: u8) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// The exit code of the command.
    pub fn code(&self) -> u8 {
        self.exit_code.unwrap_or_else(|| self.kind.code())
    }

    /// The failure as `--json` prints it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": self.to_json_body() })
    }

    /// The failure as part of another JSON object.
    pub fn to_json_body(&self) -> serde_json::Value {
        serde_json::json!({ "kind": self.kind, "message": self.message, "hint": self.hint })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            kind: error.kind().into(),
            hint: hint(&error),
            message: error.to_string(),
            exit_code: None,
            is_local: matches!(error, Error::Encryption(_)),
        }
    }
}

impl From<io::Error> for Failure {
    /// An error of standard output or standard error. Errors of files are converted where they occur, with the file's name.
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => FailureKind::OutputClosed,
            _ => FailureKind::Other,
        };
        Self::new(kind, format!("cannot write the output: {error}"))
    }
}

impl From<qo_core::json::InvalidJson> for Failure {
    fn from(error: qo_core::json::InvalidJson) -> Self {
        Error::from(error).into()
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(
            FailureKind::Other,
            format!("cannot serialise the result as JSON: {error}"),
        )
    }
}

/// A hint, where the message contains none.
fn hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Engine(EngineError::Rejected(rejection)) => return rejection_hint(rejection),
        Error::Engine(EngineError::Store(error)) => return store_hint(error),
        Error::Engine(EngineError::WorkerNotFound { .. }) => {
            "`qo workers` shows the workers of this queue"
        }
        Error::Engine(EngineError::Unreadable { .. }) => {
            "run `qo doctor` to check the store; `qo history ID --versions` shows earlier versions if the bucket is versioned"
        }
        Error::Check(CheckError::Unreachable { .. } | CheckError::Failed { .. }) => {
            "-v shows the requests; `qo config` shows which store is in use and why"
        }
        Error::Check(CheckError::NoBucket { .. }) => {
            "once it exists, `qo init` prepares it; `qo config` shows which store is in use and why"
        }
        Error::Check(CheckError::Refused { .. })
        | Error::Open(OpenError::NoCredentials { .. })
        | Error::Probe(ProbeError::Denied { .. }) => {
            "docs/guides/buckets.md lists the permissions that qo needs"
        }
        Error::Open(OpenError::NotAUrl | OpenError::UnknownScheme { .. }) => {
            "`qo config` shows where the store URL comes from"
        }
        Error::Probe(_) => "`qo doctor` shows what the probe found",
        Error::Setting(_) => "unset the variable, or set it to one of these values",
        Error::Encryption(EncryptionError::UnknownKey { .. }) => {
            "name a file with the key with --encryption-key-file or QO_ENCRYPTION_KEY_FILE; `qo key list` shows the configured keys"
        }
        Error::StillRunning { .. } => "`qo status ID` shows its progress",
        _ => return None,
    };
    Some(text.to_owned())
}

fn rejection_hint(rejection: &Rejection) -> Option<String> {
    let text = match rejection {
        Rejection::NotFound { .. } => "`qo list` shows the tasks in this store",
        Rejection::WrongStatus { .. } => "`qo status ID` shows the task",
        Rejection::LeaseLost { .. } => "another attempt has taken over and will report the result",
        Rejection::CancelAlreadyRequested => {
            "its worker stops it at the next lease renewal; `qo wait ID` waits for that"
        }
        Rejection::QueueFull { .. } => {
            "`qo queue show QUEUE` shows the settings; run more workers, or raise the limit with `qo queue set QUEUE --max-waiting N`"
        }
        Rejection::OutOfBounds {
            field: "available_at",
            ..
        } => "--delay or --at says when the task is due",
        Rejection::PayloadTooLarge { .. } => {
            "store large data in a separate object and submit its location"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn store_hint(error: &StoreError) -> Option<String> {
    let text = match error {
        StoreError::Throttled { .. } => {
            "try again later, with fewer workers or a lower --concurrency"
        }
        StoreError::Unavailable { in_doubt: true, .. } => {
            "the change may have been made: check before trying again; a submit with the same --id or --idempotency-key is safe to repeat"
        }
        StoreError::Unavailable { .. } => {
            "try again; -v shows the requests, `qo doctor` checks the store"
        }
        StoreError::Denied { .. } => {
            "docs/guides/buckets.md lists the permissions that qo needs; `qo doctor` shows which are missing"
        }
        StoreError::Corrupt { .. } => "run `qo doctor` to check the store",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        for (kind, code) in [
            (ErrorKind::BadInput, 2),
            (ErrorKind::NotFound, 3),
            (ErrorKind::Conflict, 4),
            (ErrorKind::LeaseLost, 4),
            (ErrorKind::Unavailable, 5),
            (ErrorKind::Denied, 6),
            (ErrorKind::Timeout, 7),
            (ErrorKind::Unsupported, 9),
            (ErrorKind::Damaged, 9),
            (ErrorKind::QueueFull, 10),
        ] {
            assert_eq!(FailureKind::from(kind).code(), code, "{kind:?}");
            assert!(EXIT_CODES.contains(&format!("\n  {code} ")), "{code}");
        }
        assert_eq!(FailureKind::TaskFailed.code(), 8);
        assert_eq!(FailureKind::Interrupted.code(), 130);
    }

    #[test]
    fn a_closed_output_is_not_a_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.kind.code(), 0);
        let failure = Failure::from(io::Error::other("disk full"));
        assert_eq!(failure.kind.code(), 1);
    }

    #[test]
    fn json_has_kind_message_and_hint() {
        let id = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let error = EngineError::from(Rejection::NotFound { id });
        let json = Failure::from(Error::from(error)).to_json();
        assert_eq!(json["error"]["kind"], "not_found");
        assert!(json["error"]["message"].as_str().unwrap().contains("550e"));
        assert!(json["error"]["hint"].as_str().unwrap().contains("qo list"));
        let json = Failure::bad_input("no").to_json();
        assert!(json["error"]["hint"].is_null());
    }
}
