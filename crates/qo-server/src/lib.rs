//! The HTTP API of a queue.
//!
//! [`Server`] serves any [`qo::Queue`]: in direct mode, of a broker, or of another server.
//!
//! ```text
//! server     connections, TLS, limits, stop
//! middleware request ids, cross-site checks, tokens and scopes, logs, metrics
//! routes     the table of paths, their access rules and their handlers
//! leader     which of several servers may serve
//! cluster    the node of a cluster that this process is
//! claims     claims that outlive their connection
//! events     changes of tasks, for listeners
//! metrics    measurements, for Prometheus
//! tokens     authorization
//! openapi    the document, generated from the routes and their types
//! ```
//!
//! The JSON bodies and the table from errors to status codes are in [`qo_remote::wire`], shared with the remote engine.

mod activity;
mod app;
mod author;
mod body;
mod bulk_jobs;
mod claims;
mod cluster;
mod compression;
mod config;
mod connection_limiter;
mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod leader;
mod metrics;
mod middleware;
mod openapi;
mod openapi_rules;
mod other_origins;
mod response;
mod response_room;
mod routes;
mod server;
mod task_fields;
pub mod tokens;
mod webhook_secrets;
mod write_timeout;

pub use activity::ActivityStore;
pub use cluster::{ClusterChange, ClusterControl, ClusterFailure, ClusterGauge};
pub use config::{Auth, CountsFn, JobConfig, Limits, ServerConfig, Tls};
pub use leader::Leader;
pub use openapi::{document, documented};
pub use other_origins::{BadOrigin, Origin};
pub use server::{ServeError, Server};
