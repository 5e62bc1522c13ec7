//! The rules of qo, and nothing else.
//!
//! Everything in this crate is a pure function of its arguments: no I/O, no tokio, no clock and no randomness. The engines
//! bring time, identifiers and jitter as values and make the results durable.

pub mod id;
pub mod time;

pub use id::{LeaseId, OpId, Shard, TaskId};
pub use time::Timestamp;
