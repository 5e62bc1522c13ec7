//! How long a task holds its idempotency key, and what a submit does if the key is held.
//!
//! A key belongs to the task that was submitted with it last. While that task **holds** the key, a submit with the same key makes no new
//! task. It may change the task that holds the key, if that task has not started.

use serde::{Deserialize, Serialize};

use super::{Status, Task};
use crate::time::Timestamp;

/// How long a task holds its idempotency key. A window may end it sooner.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum KeyHold {
    /// As long as the task is kept.
    #[default]
    Kept,
    /// Until the task is finished.
    Unfinished,
    /// Until the task is started.
    Waiting,
}

impl KeyHold {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Kept, Self::Unfinished, Self::Waiting];

    /// Its name in records, flags and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Unfinished => "unfinished",
            Self::Waiting => "waiting",
        }
    }
}

/// What a submit does to the task that holds its key. A task that has started is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// The task stays as it is.
    #[default]
    Keep,
    /// The task gets the input of the submit.
    Replace,
    /// The task becomes due when that of the submit would, unless it is due later already.
    Postpone,
    /// Both.
    ReplaceAndPostpone,
}

impl OnConflict {
    /// All values.
    pub const ALL: [Self; 4] = [
        Self::Keep,
        Self::Replace,
        Self::Postpone,
        Self::ReplaceAndPostpone,
    ];

    /// Its name in requests, flags and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Postpone => "postpone",
            Self::ReplaceAndPostpone => "replace_and_postpone",
        }
    }

    /// Whether the task gets a new input.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::ReplaceAndPostpone)
    }

    /// Whether the task gets a later due time.
    pub fn postpones(self) -> bool {
        matches!(self, Self::Postpone | Self::ReplaceAndPostpone)
    }
}

/// How an idempotency key is held, and what a submit does that finds it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uniqueness {
    /// How long the task holds the key.
    pub hold: KeyHold,
    /// What happens to a waiting task that holds the key.
    pub on_conflict: OnConflict,
}

impl Task {
    /// Whether the task holds its idempotency key at `now`.
    pub fn key_holds(&self, now: Timestamp) -> bool {
        let holds = match self.idempotency_hold {
            KeyHold::Kept => true,
            KeyHold::Unfinished => !self.status.is_terminal() && !self.is_expired(now),
            KeyHold::Waiting => self.has_not_started() && !self.is_expired(now),
        };
        holds
            && self.idempotency_key.is_some()
            && self.idempotency_until.is_none_or(|until| now < until)
    }

    /// Whether the task waits for its first attempt.
    pub fn has_not_started(&self) -> bool {
        self.status == Status::Pending && self.attempt == 0
    }
}
