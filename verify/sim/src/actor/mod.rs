//! The workers and clients of a run.

mod caller;
mod client;
mod program;
mod worker;

pub use self::caller::Caller;
pub(crate) use self::caller::{ELSEWHERE, TYPES};
pub(crate) use self::client::{Errands, client, limit_key, make_unique, ordering};
pub(crate) use self::program::program;
pub(crate) use self::worker::worker;

use qo_core::Json;

/// How many attempts of a delivery may fail.
pub(crate) const DELIVERY_TRIES: u32 = 2;

/// A unique payload that is too large for a record.
pub(crate) fn large(mark: u64) -> Json {
    json(format!("\"{mark:016x}{}\"", "x".repeat(66_000)))
}

/// A payload that fits into a record.
pub(crate) fn small(mark: u64) -> Json {
    json(format!("{{\"mark\":{mark}}}"))
}

/// A payload that fits into a record, and that a broker keeps apart from it.
pub(crate) fn medium(mark: u64) -> Json {
    json(format!("\"{mark:016x}{}\"", "x".repeat(3_000)))
}

fn json(text: String) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::null())
}
