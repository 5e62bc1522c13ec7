//! Bearer tokens and their scopes.
//!
//! A token is `qo_{id}_{secret}`. The id identifies its record. The secret has 256 random bits; the record stores only the
//! SHA-256. A random secret needs no slow hash, because a dictionary attack is impossible. A stored record cannot be used as a token,
//! and a token is shown only once, when it is created.
//!
//! - [`TokenStore`]: the tokens of a store, in `meta/tokens.json`, changed by compare-and-swap.
//! - `guard`: checks the tokens of requests.
//! - `limits`: tokens that are limited to queues and types.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod guard;
mod limits;
mod record;
mod store;

pub use limits::{LimitedGrant, TokenLimits};
pub use record::{InvalidToken, NewToken, Scope, TokenRecord, UnknownScope};
pub use store::{TokenError, TokenStore};

pub(crate) use guard::{AuthError, Caller, Guard, TokenSource};
pub(crate) use limits::LimitedAccess;
