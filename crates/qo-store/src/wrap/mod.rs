//! Wrappers around a store that count, log, delay or fail requests.
//!
//! Each implements [`object_store::ObjectStore`] around another store, so they can be stacked in any order below any
//! code that uses the trait. Their behaviour depends only on a seed and the order of requests, so a run can be
//! repeated.
//!
//! The wrappers that delay and fail requests are for tests and require the feature `test-util`.
//!
//! None of them implements `get_ranges` or `rename_opts`: the trait's default implementations issue the requests
//! below, and each of those is counted, delayed or failed like any other.

pub mod counting;
pub mod counts;
#[cfg(any(test, feature = "test-util"))]
pub mod faults;
#[cfg(any(test, feature = "test-util"))]
pub mod latency;
pub mod logging;
pub mod prices;

#[cfg(any(test, feature = "test-util"))]
pub mod layer;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
#[cfg(any(test, feature = "test-util"))]
pub mod version_keys;

#[cfg(any(test, feature = "test-util"))]
mod batches;
mod operation;
mod random;

pub use counting::{CountingStore, RequestCounter};
pub use counts::{Counts, Tally};
#[cfg(any(test, feature = "test-util"))]
pub use faults::{FaultKind, FaultPlan, FaultRule, FaultStore, InjectedFault};
#[cfg(any(test, feature = "test-util"))]
pub use latency::{Delay, LatencyStore};
pub use logging::LoggingStore;
pub use operation::Operation;
pub use prices::Prices;
pub use random::SplitMix64;

/// The page size of a list, and the number of keys in one delete request.
const PAGE: usize = 1_000;
