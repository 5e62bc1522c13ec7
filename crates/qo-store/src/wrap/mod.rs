//! Wrappers around a store: one counts requests, one delays them, one breaks them, one logs them.
//!
//! Each is an [`object_store::ObjectStore`] around another, so they can be stacked in any order and stand below everything
//! that speaks that trait. What they do depends on a seed and on the order of the requests alone, so a run can be repeated.
//!
//! None of them implements `get_ranges` or `rename_opts`: the trait's own forms are made of the requests below them, and
//! so each of those requests is counted, delayed or broken like any other.

pub mod counting;
pub mod counts;
pub mod faults;
pub mod latency;
pub mod logging;
pub mod prices;

#[cfg(any(test, feature = "test-util"))]
pub mod layer;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

mod batches;
mod operation;
mod random;

pub use counting::{CountingStore, RequestCounter};
pub use counts::{Counts, Tally};
pub use faults::{FaultKind, FaultPlan, FaultRule, FaultStore, InjectedFault};
pub use latency::{Delay, LatencyStore};
pub use logging::LoggingStore;
pub use operation::Operation;
pub use prices::Prices;
pub use random::SplitMix64;

/// How many entries a store puts on one page of a list, and how many keys it takes in one delete request.
const PAGE: usize = 1_000;
