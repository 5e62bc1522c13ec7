//! Store errors, one variant per condition that callers handle differently.

use std::time::Duration;

use thiserror::Error;

/// Why a store request failed.
///
/// No variant contains credentials. Messages keep the status and error code of a response, and drop its headers and
/// signed URLs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No object has this key.
    #[error("no object at {key}")]
    NotFound {
        /// The requested key.
        key: String,
    },
    /// The object changed since the caller read it: another write won.
    #[error("{key} was changed by another writer")]
    Conflict {
        /// The key of the contended object.
        key: String,
    },
    /// An object with this key already exists.
    #[error("an object already exists at {key}")]
    AlreadyExists {
        /// The existing key.
        key: String,
    },
    /// The store throttled the request for longer than the retry budget.
    #[error(
        "the store is throttling requests ({detail}); gave up on {key} after {attempts} attempts"
    )]
    Throttled {
        /// The key or prefix of the request.
        key: String,
        /// The store's message.
        detail: String,
        /// The number of times the request was sent.
        attempts: u32,
    },
    /// The store was unreachable, or returned server errors, for longer than the retry budget.
    #[error("the store is unavailable ({detail}); gave up on {key} after {attempts} attempts in {elapsed:?}{}", if *in_doubt { ", and the write may still take effect" } else { "" })]
    Unavailable {
        /// The key or prefix of the request.
        key: String,
        /// The last failure.
        detail: String,
        /// The number of times the request was sent.
        attempts: u32,
        /// The time spent on all attempts.
        elapsed: Duration,
        /// Whether a write may have been applied, or may still be applied, although no response confirmed it.
        in_doubt: bool,
    },
    /// The store rejected the credentials, or they lack a permission.
    #[error("the store denied access to {key}: {detail}")]
    Denied {
        /// The key or bucket of the request.
        key: String,
        /// The store's error code.
        detail: String,
    },
    /// The store does not support the operation.
    #[error("the store does not support {operation}: {detail}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The reason and the alternative.
        detail: String,
    },
    /// The stored bytes are invalid: a truncated body, a wrong digest or a record that does not parse.
    #[error("the object at {key} is damaged: {detail}")]
    Corrupt {
        /// The key of the damaged object.
        key: String,
        /// What is wrong with it.
        detail: String,
    },
}
