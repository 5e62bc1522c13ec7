//! What makes a queue operation durable on a store.
//!
//! - [`api`]: the words of every engine: what is asked, and what is answered.
//! - [`engine`]: the one trait that every mode implements.
//! - [`objects`]: direct mode. Workers and clients talk straight to the bucket.

pub mod api;
pub mod engine;
pub mod error;
pub mod objects;

pub use engine::Engine;
pub use error::EngineError;
pub use objects::ObjectsEngine;
