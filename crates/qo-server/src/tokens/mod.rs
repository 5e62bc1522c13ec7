//! Bearer tokens: who may do what.
//!
//! A token is `qo_{id}_{secret}`. The id finds its record; the secret is 256 random bits, of which the record holds only the SHA-256.
//! A secret that cannot be guessed needs no slow hash: there is no dictionary to try. What is stored cannot be used to sign in,
//! and a token is shown once, when it is made.
//!
//! - [`TokenStore`]: the tokens of a store, in `meta/tokens.json`, changed by compare-and-swap.
//! - `guard`: what a server holds a request's token against.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod guard;
mod record;
mod store;

pub use record::{InvalidToken, NewToken, Scope, TokenRecord, UnknownScope};
pub use store::{TokenError, TokenStore};

pub(crate) use guard::{Barred, Caller, Guard, TokenSource};
