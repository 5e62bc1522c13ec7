//! The processes of a run: what they do, and how they live, die and come back.

mod caller;
mod client;
mod program;
mod recorder;
mod worker;

pub use self::caller::Caller;
pub(crate) use self::caller::TYPES;
pub(crate) use self::client::{Errands, client};
pub(crate) use self::program::program;
pub(crate) use self::worker::worker;

use qo_core::Json;

/// A payload that does not fit into a record, unlike any other.
pub(crate) fn large(mark: u64) -> Json {
    json(format!("\"{mark:016x}{}\"", "x".repeat(66_000)))
}

/// A payload that fits.
pub(crate) fn small(mark: u64) -> Json {
    json(format!("{{\"mark\":{mark}}}"))
}

fn json(text: String) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::null())
}
