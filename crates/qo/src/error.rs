//! Why something was not done: one variant per condition, each one line that says what to do.

use std::time::Duration;

use qo_broker::election::ElectionError;
use qo_core::id::{InvalidId, InvalidShard};
use qo_core::json::InvalidJson;
use qo_core::names::{InvalidLabel, InvalidName};
use qo_core::task::UnknownStatus;
use qo_core::time::InvalidTimestamp;
use qo_core::{Rejection, Status, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::environment::ConfigError;
use qo_remote::InvalidServer;
use qo_store::StoreError;
use qo_store::open::{CheckError, OpenError};
use qo_store::probe::ProbeError;
use qo_store::sqlite::SqliteOpenError;
use thiserror::Error;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store is there, but cannot be used.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The store cannot be trusted with a queue, or could not be probed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// A variable of the environment makes no sense.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// The URL asks for an engine that there is not.
    #[error(
        "unknown engine {name:?} in the store URL: leave ?engine= out, or write engine=objects, engine=json or engine=slate"
    )]
    UnknownEngine {
        /// The name that was given.
        name: String,
    },
    /// The URL names no server that can be asked.
    #[error(transparent)]
    Server(#[from] InvalidServer),
    /// Who leads cannot be found out.
    #[error(transparent)]
    Leadership(#[from] ElectionError),
    /// Another process has the queue open for itself, and serves nobody else.
    #[error(
        "another process has this queue open for itself since {since} (last seen {} s ago), and only one can: stop it, or start `qo \
         serve` in its place, so that all can share the queue; if it has died, try again in a minute",
        heartbeat_age.as_secs()
    )]
    QueueHeld {
        /// Since when.
        since: Timestamp,
        /// How long ago it last said that it is there.
        heartbeat_age: Duration,
    },
    /// A broker was asked for where there is none.
    #[error(
        "only a queue with engine=slate in its store URL has a broker; any other one can be opened by all at once"
    )]
    NoBroker,
    /// The engine did not do it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A queue, a task type or a worker has a name that cannot be one.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A tag or an idempotency key is none.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// An id is none.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// A shard is none.
    #[error(transparent)]
    Shard(#[from] InvalidShard),
    /// A status is none.
    #[error(transparent)]
    Status(#[from] UnknownStatus),
    /// A time is none.
    #[error(transparent)]
    Time(#[from] InvalidTimestamp),
    /// A payload is not JSON, or nests too deep.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// An option was given that means nothing without another one.
    #[error("{option} means nothing without {needed}")]
    OptionWithout {
        /// The option that was given.
        option: &'static str,
        /// The option that was not.
        needed: &'static str,
    },
    /// A task did not come to its end in time.
    #[error("task {id} is still {status} after {waited:?}; it goes on, wait for it again")]
    StillRunning {
        /// The task.
        id: TaskId,
        /// What it was at the last look.
        status: Status,
        /// How long was waited.
        waited: Duration,
    },
    /// A filter was given that no task matches.
    #[error("no task matches; nothing was changed")]
    NothingMatched,
    /// Two handlers of a worker do the same type.
    #[error("two handlers do the task type {task_type:?}, by its name or by an alias; remove one")]
    TwoHandlers {
        /// The type.
        task_type: String,
    },
    /// A worker does nothing.
    #[error("this worker handles no task type; give it a handler")]
    NoHandler,
    /// A worker has a setting that makes no sense.
    #[error("the worker's {setting} must be {allowed}")]
    WorkerSetting {
        /// The setting.
        setting: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// The machine gives a worker no threads.
    #[error("could not start the threads for handlers: {detail}")]
    NoThreads {
        /// What it said.
        detail: String,
    },
    /// The machine does not tell of signals.
    #[error("could not listen to signals: {detail}")]
    NoSignals {
        /// What it said.
        detail: String,
    },
    /// A worker was told to stop at once.
    #[error("stopped at once; {running} running tasks come back when their leases have run out")]
    StoppedAtOnce {
        /// How many tasks were running.
        running: usize,
    },
    /// A worker ended without a word: the runtime that it ran on is gone.
    #[error(
        "the worker ended with the runtime that it ran on; its tasks come back when their leases have run out"
    )]
    WorkerGone,
    /// A drain came to no end.
    #[error("stopped after {attempts} attempts; do handlers submit tasks without an end?")]
    EndlessDrain {
        /// How many attempts there were.
        attempts: u64,
    },
    /// An attempt is over, and its handler asked for something.
    #[error("attempt {attempt} of task {id} is over; its handler should stop")]
    AttemptOver {
        /// The task.
        id: TaskId,
        /// The attempt.
        attempt: u32,
    },
    /// So many tasks failed that the rest was not tried.
    #[error(
        "stopped after {failures} failures; the tasks that were not looked at are as they were"
    )]
    TooManyFailures {
        /// How many there were.
        failures: usize,
    },
}

/// The sort of an error, for programs that treat all of a sort alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked makes no sense, or is out of bounds.
    BadInput,
    /// There is no such task, or none matches.
    NotFound,
    /// The task is in a state in which this cannot be done, or others keep changing it.
    Conflict,
    /// The presented lease is no longer the current one.
    LeaseLost,
    /// It took longer than was allowed.
    Timeout,
    /// The store cannot be reached, or does not answer; trying again can help.
    Unavailable,
    /// The store refuses the credentials.
    Denied,
    /// The store, or its settings, lack what is needed.
    Unsupported,
    /// What is stored is damaged.
    Damaged,
}

impl Error {
    /// The sort of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownEngine { .. }
            | Self::Name(_)
            | Self::Label(_)
            | Self::Id(_)
            | Self::Shard(_)
            | Self::Status(_)
            | Self::Time(_)
            | Self::Json(_)
            | Self::Setting(_)
            | Self::Server(_)
            | Self::NoBroker
            | Self::OptionWithout { .. }
            | Self::TwoHandlers { .. }
            | Self::NoHandler
            | Self::WorkerSetting { .. } => ErrorKind::BadInput,
            Self::StoppedAtOnce { .. } | Self::WorkerGone | Self::EndlessDrain { .. } => {
                ErrorKind::Conflict
            }
            Self::Open(error) => open_kind(error),
            Self::Check(error) => check_kind(error),
            Self::Probe(ProbeError::Untrusted(_))
            | Self::NoThreads { .. }
            | Self::NoSignals { .. } => ErrorKind::Unsupported,
            Self::Probe(_) | Self::QueueHeld { .. } => ErrorKind::Unavailable,
            Self::Engine(error) => engine_kind(error),
            Self::Leadership(error) => leadership_kind(error),
            Self::StillRunning { .. } => ErrorKind::Timeout,
            Self::NothingMatched => ErrorKind::NotFound,
            Self::AttemptOver { .. } => ErrorKind::LeaseLost,
            Self::TooManyFailures { .. } => ErrorKind::Conflict,
        }
    }
}

fn open_kind(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NoCredentials { .. } | OpenError::IncompleteCredentials { .. } => {
            ErrorKind::Denied
        }
        OpenError::Sqlite(SqliteOpenError::Unwritable { .. }) => ErrorKind::Denied,
        OpenError::Sqlite(SqliteOpenError::Other { .. }) => ErrorKind::Unavailable,
        OpenError::MissingFeature { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::BadInput,
    }
}

fn check_kind(error: &CheckError) -> ErrorKind {
    match error {
        CheckError::NoBucket { .. }
        | CheckError::WrongRegion { .. }
        | CheckError::NotAStore { .. } => ErrorKind::BadInput,
        CheckError::Refused { .. } | CheckError::NoCredentials { .. } => ErrorKind::Denied,
        CheckError::ClockSkewed { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    }
}

fn engine_kind(error: &EngineError) -> ErrorKind {
    match error {
        EngineError::Rejected(rejection) => rejection_kind(rejection),
        EngineError::Store(error) => store_kind(error),
        EngineError::Unreadable { .. } => ErrorKind::Damaged,
        EngineError::Contended { .. } | EngineError::QueuePaused { .. } => ErrorKind::Conflict,
        EngineError::PayloadTooLarge { .. } | EngineError::BadRequest(_) => ErrorKind::BadInput,
        EngineError::NotVersioned | EngineError::QueueFull { .. } => ErrorKind::Unsupported,
        EngineError::NotLeader | EngineError::Closed => ErrorKind::Unavailable,
    }
}

fn leadership_kind(error: &ElectionError) -> ErrorKind {
    match error {
        ElectionError::Store(error) => store_kind(error),
        ElectionError::Unreadable { .. } => ErrorKind::Damaged,
        ElectionError::Lost { .. } | ElectionError::Unconfirmed | ElectionError::Released => {
            ErrorKind::Unavailable
        }
    }
}

fn rejection_kind(rejection: &Rejection) -> ErrorKind {
    match rejection {
        Rejection::NotFound { .. } => ErrorKind::NotFound,
        Rejection::LeaseLost { .. } => ErrorKind::LeaseLost,
        Rejection::PayloadTooLarge { .. }
        | Rejection::OutOfBounds { .. }
        | Rejection::RetryPolicy(_) => ErrorKind::BadInput,
        Rejection::WrongStatus { .. }
        | Rejection::NotDue { .. }
        | Rejection::AlreadyDue { .. }
        | Rejection::Expired { .. }
        | Rejection::NotExpired { .. }
        | Rejection::LeaseHolds { .. }
        | Rejection::CancelAlreadyRequested
        | Rejection::AttemptsUsedUp => ErrorKind::Conflict,
    }
}

fn store_kind(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::NotFound { .. } => ErrorKind::NotFound,
        StoreError::Conflict { .. } | StoreError::AlreadyExists { .. } => ErrorKind::Conflict,
        StoreError::Denied { .. } => ErrorKind::Denied,
        StoreError::Unsupported { .. } => ErrorKind::Unsupported,
        StoreError::Corrupt { .. } => ErrorKind::Damaged,
        _ => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_the_condition() {
        let id = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let not_found = EngineError::from(Rejection::NotFound { id });
        assert_eq!(Error::from(not_found).kind(), ErrorKind::NotFound);
        assert_eq!(
            Error::from(EngineError::NotVersioned).kind(),
            ErrorKind::Unsupported
        );
        let malformed = "nonsense".parse::<TaskId>().unwrap_err();
        assert_eq!(Error::from(malformed).kind(), ErrorKind::BadInput);
        assert_eq!(Error::NothingMatched.kind(), ErrorKind::NotFound);
    }
}
