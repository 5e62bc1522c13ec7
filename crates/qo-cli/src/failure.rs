//! Why a command did not do what was asked, and with which exit code it says so.
//!
//! This is the one place where errors become exit codes. The table is also in `docs/reference/cli.md` and in `qo help`.

use std::fmt;
use std::io;

use qo::{EngineError, Error, ErrorKind, Rejection, StoreError};
use qo_store::open::{CheckError, OpenError};
use serde::Serialize;

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The sort, which decides the exit code.
    pub kind: FailureKind,
    /// What happened, and why.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The sort of a failure. Its name in JSON is its name here, in `snake_case`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Something that has no sort of its own, or several sorts at once.
    Other,
    /// What was asked makes no sense, or is out of bounds.
    BadInput,
    /// There is no such task, or none matches.
    NotFound,
    /// The task is in a state in which this cannot be done, or others keep changing it.
    Conflict,
    /// The presented lease is no longer the current one.
    LeaseLost,
    /// The store cannot be reached, or is too busy.
    Unavailable,
    /// The store refuses the credentials, or there are none.
    Denied,
    /// It took longer than was allowed.
    Timeout,
    /// The task that was waited for ended without success.
    TaskFailed,
    /// The store, or its settings, lack what is needed.
    Unsupported,
    /// What is stored is damaged.
    Damaged,
    /// Somebody interrupted it.
    Interrupted,
    /// Whoever read the output has gone away. This is no failure of the command.
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
            _ => Self::Other,
        }
    }
}

/// The exit codes, as the help and the documentation show them.
pub const EXIT_CODES: &str = "\
  0    it was done
  1    another failure, or failures of several sorts
  2    bad usage or bad input
  3    not found: no such task, or none matches
  4    conflict: the task is in another state, its lease is lost, its queue is paused
  5    unavailable: the store cannot be reached, or asks for fewer requests
  6    denied: missing or refused credentials
  7    a wait took longer than was allowed
  8    the task that was waited for ended without success
  9    the store lacks what is needed, cannot be trusted, or holds damaged data
  130  interrupted";

impl Failure {
    /// A failure of a sort.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// What was asked makes no sense.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self::new(FailureKind::BadInput, message)
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure as `--json` shows it.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": self.to_json_body() })
    }

    /// The failure as a part of something else that `--json` shows.
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
        }
    }
}

impl From<io::Error> for Failure {
    /// What cannot be written to standard output or standard error. Other I/O says by itself which file it was about.
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
            format!("cannot write the result as JSON: {error}"),
        )
    }
}

/// What to do, where the message does not say so already.
fn hint(error: &Error) -> Option<String> {
    let text = match error {
        Error::Engine(EngineError::Rejected(rejection)) => return rejection_hint(rejection),
        Error::Engine(EngineError::Store(error)) => return store_hint(error),
        Error::Engine(EngineError::Unreadable { .. }) => {
            "`qo doctor` looks the store over; `qo history ID --versions` shows earlier versions where the store keeps them"
        }
        Error::Check(CheckError::Unreachable { .. } | CheckError::Failed { .. }) => {
            "-v shows the requests; `qo config` shows which store is used and why"
        }
        Error::Check(CheckError::NoBucket { .. }) => {
            "then `qo init` prepares it; `qo config` shows which store is used and why"
        }
        Error::Check(CheckError::Refused { .. }) | Error::Open(OpenError::NoCredentials { .. }) => {
            "docs/guides/buckets.md lists the permissions that qo needs"
        }
        Error::Open(OpenError::NotAUrl | OpenError::UnknownScheme { .. }) => {
            "`qo config` shows where the store URL comes from"
        }
        Error::Probe(_) => "`qo doctor` shows what the probe found",
        Error::Setting(_) => "unset the variable, or give it one of these values",
        Error::StillRunning { .. } => "`qo status ID` shows how far it is",
        _ => return None,
    };
    Some(text.to_owned())
}

fn rejection_hint(rejection: &Rejection) -> Option<String> {
    let text = match rejection {
        Rejection::NotFound { .. } => "`qo list` shows the tasks of this store",
        Rejection::WrongStatus { .. } => "`qo status ID` shows what state the task is in",
        Rejection::LeaseLost { .. } => {
            "another attempt has taken over; its worker will report the outcome"
        }
        Rejection::CancelAlreadyRequested => {
            "its worker stops it with the next renewal of its lease; `qo wait ID` waits for that"
        }
        Rejection::PayloadTooLarge { .. } => {
            "put large data into an object of its own and submit its address"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn store_hint(error: &StoreError) -> Option<String> {
    let text = match error {
        StoreError::Throttled { .. } => {
            "wait a little and try again, with fewer workers or a smaller --concurrency"
        }
        StoreError::Unavailable { in_doubt: true, .. } => {
            "look whether it was done before trying again; with the same --id or --idempotency-key a second submit is harmless"
        }
        StoreError::Unavailable { .. } => {
            "try again; -v shows the requests, `qo doctor` looks the store over"
        }
        StoreError::Denied { .. } => {
            "docs/guides/buckets.md lists the permissions that qo needs; `qo doctor` finds out which are missing"
        }
        StoreError::Corrupt { .. } => "`qo doctor` looks the store over",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_of_error_has_its_exit_code() {
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
        ] {
            assert_eq!(FailureKind::from(kind).code(), code, "{kind:?}");
            assert!(EXIT_CODES.contains(&format!("\n  {code} ")), "{code}");
        }
        assert_eq!(FailureKind::TaskFailed.code(), 8);
        assert_eq!(FailureKind::Interrupted.code(), 130);
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
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
