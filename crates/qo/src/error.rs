//! Errors: one variant per condition, each message one line that says what to do.

use std::time::Duration;

use qo_blob::BlobError;
use qo_broker::election::ElectionError;
use qo_core::id::{InvalidId, InvalidShard};
use qo_core::json::InvalidJson;
use qo_core::limit::InvalidLimit;
use qo_core::names::{InvalidLabel, InvalidName};
use qo_core::schedule::InvalidSchedule;
use qo_core::task::UnknownStatus;
use qo_core::time::InvalidTimestamp;
use qo_core::webhook::InvalidWebhook;
use qo_core::{InvalidQueueSettings, Rejection, Status, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::environment::ConfigError;
#[cfg(feature = "remote")]
use qo_remote::InvalidServer;
use qo_store::StoreError;
use qo_store::open::{CheckError, OpenError};
use qo_store::probe::ProbeError;
#[cfg(feature = "sqlite")]
use qo_store::sqlite::SqliteOpenError;
use thiserror::Error;

use crate::encryption::EncryptionError;

/// Error of an operation of this crate.
///
/// [`Error::kind`] groups the variants for programs that handle errors by category.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store exists but cannot be used.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The store failed its probe, or could not be probed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// An environment variable has an invalid value.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// This build of qo lacks support for the URL.
    #[error("this build does not support {url} URLs; enable the Cargo feature {feature:?} of qo")]
    MissingFeature {
        /// The unsupported part of the URL.
        url: &'static str,
        /// The Cargo feature to enable.
        feature: &'static str,
    },
    /// The URL names an unknown engine.
    #[error(
        "unknown engine {name:?} in the store URL: write engine=direct (the default), engine=json or engine=slate"
    )]
    UnknownEngine {
        /// The given name.
        name: String,
    },
    /// The URL of a server is invalid.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Server(#[from] InvalidServer),
    /// No single server was found on the local network.
    #[cfg(feature = "mdns")]
    #[error(transparent)]
    ServerSearch(#[from] crate::mdns::ServerSearchError),
    /// The leader of the queue cannot be determined.
    #[error(transparent)]
    Leadership(#[from] ElectionError),
    /// Another process has the queue open and does not serve it to others.
    #[error(
        "another process has held this queue exclusively since {since} (last heartbeat {} s ago): stop it, or run `qo serve` \
         instead so that processes can share the queue",
        heartbeat_age.as_secs()
    )]
    QueueHeld {
        /// When it opened the queue.
        since: Timestamp,
        /// Age of its last heartbeat.
        heartbeat_age: Duration,
    },
    /// The queue has no broker.
    #[error(
        "only a queue with engine=slate in its store URL has a broker; any other queue can be opened by many processes at once"
    )]
    NoBroker,
    /// The engine refused or failed the operation.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An operation on a blob failed.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A payload cannot be encrypted or decrypted, or a key is invalid.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// The queue stores no blobs.
    #[error("this queue stores no blobs: connect to it by a store URL or by the URL of its server")]
    NoBlobs,
    /// The name of a queue, a task type or a worker is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A tag or an idempotency key is invalid.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// An id is invalid.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// A shard is invalid.
    #[error(transparent)]
    Shard(#[from] InvalidShard),
    /// A status is unknown.
    #[error(transparent)]
    Status(#[from] UnknownStatus),
    /// A timestamp is invalid.
    #[error(transparent)]
    Time(#[from] InvalidTimestamp),
    /// A payload is not JSON, or is nested too deeply.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// An option requires another one.
    #[error("{option} requires {needed}")]
    OptionWithout {
        /// The given option.
        option: &'static str,
        /// The missing option.
        needed: &'static str,
    },
    /// A task did not finish in time.
    #[error("task {id} is still {status} after {waited:.1?}; it continues, so wait for it again")]
    StillRunning {
        /// The task.
        id: TaskId,
        /// Its status when it was last read.
        status: Status,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The definition of a schedule is invalid.
    #[error(transparent)]
    Schedule(#[from] InvalidSchedule),
    /// The settings of a queue are invalid.
    #[error(transparent)]
    QueueSettings(#[from] InvalidQueueSettings),
    /// There is no schedule of this name.
    #[error("there is no schedule {name}; `qo schedule list` shows the names")]
    NoSchedule {
        /// The name.
        name: String,
    },
    /// A limit is invalid.
    #[error(transparent)]
    Limit(#[from] InvalidLimit),
    /// There is no limit of this name.
    #[error("there is no limit {name}; `qo limit list` shows the names")]
    NoLimit {
        /// The name.
        name: String,
    },
    /// A webhook is invalid.
    #[error("the webhook is invalid: {0}")]
    Webhook(#[from] InvalidWebhook),
    /// There is no webhook of this name.
    #[error("there is no webhook {name}; `qo webhook list` shows the names")]
    NoWebhook {
        /// The name.
        name: String,
    },
    /// There is a schedule of this name with another definition.
    #[error(
        "there is a schedule {name} with another definition; replace it explicitly, or choose another name"
    )]
    ScheduleExists {
        /// The name.
        name: String,
    },
    /// The record of a schedule cannot be parsed.
    #[error(
        "the record of the schedule {name} cannot be read: {detail}; remove the schedule and add it again"
    )]
    UnreadableSchedule {
        /// The name.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A later version of qo defined a schedule, and this version would leave out some of what it says.
    #[error(
        "the schedule {name} needs a newer version of qo: this version would leave out some settings of its tasks; update qo, or remove the schedule"
    )]
    NewerSchedule {
        /// The name.
        name: String,
    },
    /// The record of a schedule is too large.
    #[error(
        "the record of the schedule {name} would have {size} bytes, which is too many; shorten the input or the list of times"
    )]
    ScheduleTooLarge {
        /// The name.
        name: String,
        /// Its size.
        size: usize,
    },
    /// The range of a backfill is invalid.
    #[error("a backfill needs a past range that does not end before it starts")]
    BackfillRange,
    /// The range of a backfill has too many ticks.
    #[error("the range has more than {max} ticks; split it into shorter ranges")]
    BackfillTooLarge {
        /// The most ticks.
        max: usize,
    },
    /// No task matches the filter.
    #[error("no task matches; nothing was changed")]
    NothingMatched,
    /// Two handlers of a worker have the same task type.
    #[error("two handlers have the task type {task_type:?}, as name or alias; remove one")]
    DuplicateHandler {
        /// The task type.
        task_type: String,
    },
    /// A worker has no handler.
    #[error("this worker has no handler; add one")]
    NoHandler,
    /// A setting of a worker is out of range.
    #[error("the worker's {setting} must be {allowed}")]
    WorkerSetting {
        /// The setting.
        setting: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The operating system did not start threads for handlers.
    #[error("could not start the threads for handlers: {detail}")]
    NoThreads {
        /// The error of the operating system.
        detail: String,
    },
    /// The process cannot handle signals.
    #[error("could not install signal handlers: {detail}")]
    NoSignals {
        /// The error of the operating system.
        detail: String,
    },
    /// A worker was stopped immediately.
    #[error("stopped immediately; {running} running tasks are retried when their leases expire")]
    StoppedAtOnce {
        /// Number of tasks that were running.
        running: usize,
    },
    /// The runtime of a worker was shut down.
    #[error(
        "the runtime of the worker was shut down; its tasks are retried when their leases expire"
    )]
    WorkerGone,
    /// A drain did not end.
    #[error("stopped after {attempts} attempts; do handlers submit tasks endlessly?")]
    EndlessDrain {
        /// Number of attempts.
        attempts: u64,
    },
    /// The handler of an attempt that is over made a request.
    #[error("attempt {attempt} of task {id} is over; its handler should stop")]
    AttemptOver {
        /// The task.
        id: TaskId,
        /// The attempt.
        attempt: u32,
    },
    /// A bulk operation stopped because of too many failures.
    #[error("stopped after {failures} failures; the remaining tasks are unchanged")]
    TooManyFailures {
        /// Number of failures.
        failures: usize,
    },
}

/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid or out of range.
    BadInput,
    /// The task does not exist, or no task matches.
    NotFound,
    /// The task's status does not allow the operation, or other processes keep changing the task.
    Conflict,
    /// The lease is no longer current.
    LeaseLost,
    /// A time limit passed.
    Timeout,
    /// The store cannot be reached or does not respond. A retry can help.
    Unavailable,
    /// The store rejects the credentials.
    Denied,
    /// The store, its settings, or this build of qo lack something that the operation needs.
    Unsupported,
    /// Stored data is damaged.
    Damaged,
    /// As many tasks wait as the settings of the queue allow. A retry helps when some have started.
    QueueFull,
}

impl Error {
    /// Whether the operation may have been carried out, or may still be, although it returned this error. A submit with an id or an
    /// idempotency key can simply be repeated.
    pub fn is_in_doubt(&self) -> bool {
        matches!(
            self,
            Self::Engine(EngineError::Store(StoreError::Unavailable {
                in_doubt: true,
                ..
            }))
        )
    }

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            #[cfg(feature = "remote")]
            Self::Server(_) => ErrorKind::BadInput,
            #[cfg(feature = "mdns")]
            Self::ServerSearch(error) => search_kind(error),
            Self::UnknownEngine { .. }
            | Self::Name(_)
            | Self::Label(_)
            | Self::Id(_)
            | Self::Shard(_)
            | Self::Status(_)
            | Self::Time(_)
            | Self::Json(_)
            | Self::Setting(_)
            | Self::NoBroker
            | Self::OptionWithout { .. }
            | Self::DuplicateHandler { .. }
            | Self::NoHandler
            | Self::Schedule(_)
            | Self::QueueSettings(_)
            | Self::Limit(_)
            | Self::Webhook(_)
            | Self::ScheduleTooLarge { .. }
            | Self::BackfillRange
            | Self::BackfillTooLarge { .. }
            | Self::WorkerSetting { .. } => ErrorKind::BadInput,
            Self::NoSchedule { .. } | Self::NoLimit { .. } | Self::NoWebhook { .. } => {
                ErrorKind::NotFound
            }
            Self::ScheduleExists { .. } => ErrorKind::Conflict,
            Self::UnreadableSchedule { .. } => ErrorKind::Damaged,
            Self::StoppedAtOnce { .. } | Self::WorkerGone | Self::EndlessDrain { .. } => {
                ErrorKind::Conflict
            }
            Self::Open(error) => open_kind(error),
            Self::Check(error) => check_kind(error),
            Self::Probe(ProbeError::Untrusted(_))
            | Self::MissingFeature { .. }
            | Self::NewerSchedule { .. }
            | Self::NoBlobs
            | Self::NoThreads { .. }
            | Self::NoSignals { .. } => ErrorKind::Unsupported,
            Self::Probe(ProbeError::Denied { .. }) => ErrorKind::Denied,
            Self::Probe(_) | Self::QueueHeld { .. } => ErrorKind::Unavailable,
            Self::Engine(error) => engine_kind(error),
            Self::Blob(error) => blob_kind(error),
            Self::Encryption(error) => encryption_kind(error),
            Self::Leadership(error) => leadership_kind(error),
            Self::StillRunning { .. } => ErrorKind::Timeout,
            Self::NothingMatched => ErrorKind::NotFound,
            Self::AttemptOver { .. } => ErrorKind::LeaseLost,
            Self::TooManyFailures { .. } => ErrorKind::Conflict,
        }
    }
}

#[cfg(feature = "mdns")]
fn search_kind(error: &crate::mdns::ServerSearchError) -> ErrorKind {
    use crate::mdns::ServerSearchError;
    match error {
        ServerSearchError::Several { .. } | ServerSearchError::TokenInClear { .. } => {
            ErrorKind::BadInput
        }
        ServerSearchError::Mdns(_)
        | ServerSearchError::NoAnswer
        | ServerSearchError::NoSuchName { .. } => ErrorKind::Unavailable,
    }
}

fn open_kind(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NoCredentials { .. } | OpenError::IncompleteCredentials { .. } => {
            ErrorKind::Denied
        }
        #[cfg(feature = "sqlite")]
        OpenError::Sqlite(SqliteOpenError::Unwritable { .. }) => ErrorKind::Denied,
        #[cfg(feature = "sqlite")]
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
        EngineError::WorkerNotFound { .. } => ErrorKind::NotFound,
        EngineError::Unreadable { .. } => ErrorKind::Damaged,
        EngineError::Contended { .. }
        | EngineError::QueuePaused { .. }
        | EngineError::DocumentConflict { .. } => ErrorKind::Conflict,
        EngineError::PayloadTooLarge { .. } | EngineError::BadRequest(_) => ErrorKind::BadInput,
        EngineError::NotVersioned | EngineError::ObjectFull { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    }
}

fn blob_kind(error: &BlobError) -> ErrorKind {
    match error {
        BlobError::NotFound { .. } => ErrorKind::NotFound,
        BlobError::Damaged { .. } | BlobError::Unreadable { .. } => ErrorKind::Damaged,
        BlobError::Contended { .. } => ErrorKind::Conflict,
        BlobError::Store(error) => store_kind(error),
        BlobError::Engine(error) => engine_kind(error),
        BlobError::Spool { .. } => ErrorKind::Unavailable,
        _ => ErrorKind::BadInput,
    }
}

fn encryption_kind(error: &EncryptionError) -> ErrorKind {
    match error {
        EncryptionError::UnknownKey { .. } => ErrorKind::Denied,
        EncryptionError::Refused { .. } | EncryptionError::Damaged { .. } => ErrorKind::Damaged,
        EncryptionError::NewerFormat { .. }
        | EncryptionError::RefersToBlobs
        | EncryptionError::NoRandomness => ErrorKind::Unsupported,
        _ => ErrorKind::BadInput,
    }
}

fn leadership_kind(error: &ElectionError) -> ErrorKind {
    match error {
        ElectionError::Store(error) => store_kind(error),
        ElectionError::Unreadable { .. } => ErrorKind::Damaged,
        _ => ErrorKind::Unavailable,
    }
}

fn rejection_kind(rejection: &Rejection) -> ErrorKind {
    match rejection {
        Rejection::NotFound { .. } => ErrorKind::NotFound,
        Rejection::LeaseLost { .. } => ErrorKind::LeaseLost,
        Rejection::PayloadTooLarge { .. }
        | Rejection::OutOfBounds { .. }
        | Rejection::RetryPolicy(_) => ErrorKind::BadInput,
        Rejection::QueueFull { .. } => ErrorKind::QueueFull,
        _ => ErrorKind::Conflict,
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
