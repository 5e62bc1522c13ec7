//! What can go wrong with a store, one variant per condition that a caller treats differently.

use std::time::Duration;

use thiserror::Error;

/// Why a request to a store did not do what was asked.
///
/// No variant ever carries a credential: messages from below pass through [`StoreError`]'s constructors, which keep the
/// status and the code of an answer and drop its headers and signed addresses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// There is no object under this key.
    #[error("there is no object at {key}")]
    NotFound {
        /// The key that was asked for.
        key: String,
    },
    /// The object changed since the caller read it: somebody else's write won.
    #[error("{key} was changed by somebody else")]
    Conflict {
        /// The key of the contended object.
        key: String,
    },
    /// A create found an object in its place.
    #[error("there is already an object at {key}")]
    AlreadyExists {
        /// The key that is taken.
        key: String,
    },
    /// The store asked to be asked less often, for longer than the retry budget.
    #[error(
        "the store is throttling requests ({detail}); gave up on {key} after {attempts} attempts"
    )]
    Throttled {
        /// The key, or the prefix, of the request.
        key: String,
        /// What the store said.
        detail: String,
        /// How many times the request was sent.
        attempts: u32,
    },
    /// The store could not be reached, or answered with a failure of its own, for longer than the retry budget.
    #[error("the store is unavailable ({detail}); gave up on {key} after {attempts} attempts in {elapsed:?}{}", if *in_doubt { ", and the write may still take effect" } else { "" })]
    Unavailable {
        /// The key, or the prefix, of the request.
        key: String,
        /// What happened last.
        detail: String,
        /// How many times the request was sent.
        attempts: u32,
        /// How long it was tried.
        elapsed: Duration,
        /// Whether a write may have been applied, or may yet be, although no answer said so.
        in_doubt: bool,
    },
    /// The store refuses these credentials, or they lack a permission.
    #[error("the store refused access to {key}: {detail}")]
    Denied {
        /// The key, or the bucket, of the request.
        key: String,
        /// The store's own code for the refusal.
        detail: String,
    },
    /// The store cannot do what was asked.
    #[error("the store does not support {operation}: {detail}")]
    Unsupported {
        /// What was asked.
        operation: &'static str,
        /// Why not, and what to do instead.
        detail: String,
    },
    /// What is stored cannot be what was written: a short body, a wrong digest, a record that does not parse.
    #[error("the object at {key} is damaged: {detail}")]
    Corrupt {
        /// The key of the damaged object.
        key: String,
        /// What is wrong with it.
        detail: String,
    },
}
