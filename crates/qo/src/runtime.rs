//! The source of time, timers, tasks and randomness.
//!
//! Everything in qo takes these from a [`Runtime`]. Programs need it only to replace tokio and the system clock, for instance in a
//! simulation: see [`Connect::runtime`](crate::Connect::runtime).

#[doc(inline)]
pub use qo_store::runtime::{BoxFuture, Runtime, RuntimeExt, TokioRuntime};
