//! What makes a queue operation durable on a store.
//!
//! - [`api`]: the words of every engine: what is asked, and what is answered.
//! - [`engine`]: the one trait that every mode implements.
//! - [`leadership`]: which of several brokers leads.
//! - [`objects`]: direct mode. Workers and clients talk straight to the bucket.
//! - [`remote`]: a queue behind another process's HTTP API.
//! - [`wire`]: the JSON forms of that API.
//! - [`state`]: broker mode. One process holds the queue in memory and commits in groups.
//! - [`watch`]: what an engine tells whoever runs it.
//! - `conformance`: what every engine must do, as a test suite; built with the feature of that name.
//! - `fuzz`: what the fuzzers run; built with the feature `fuzzing`.

pub mod api;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod engine;
pub mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod leadership;
pub mod objects;
pub mod remote;
pub mod state;
pub mod watch;
pub mod wire;

pub use engine::Engine;
pub use error::EngineError;
pub use objects::ObjectsEngine;
pub use remote::RemoteEngine;
pub use state::StateEngine;
