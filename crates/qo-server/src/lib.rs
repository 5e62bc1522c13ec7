//! The HTTP API of a queue.
//!
//! [`Server`] serves any [`qo::Queue`], whatever lies below it: direct mode, a broker, another server.
//!
//! ```text
//! server     connections, TLS, limits, stop
//! envelope   request names, other sites, tokens and scopes, logs, metrics
//! routes     one table of paths, who may use them, and what serves them
//! leader     which of several servers may answer
//! claims     claims that outlive their connection
//! events     what happens to tasks, for listeners
//! metrics    what is measured, for Prometheus
//! tokens     who may do what
//! openapi    the document, made from the routes and their types
//! ```
//!
//! The JSON forms and the table from errors to status codes are in [`qo_remote::wire`], shared with the remote engine.

mod answer;
mod app;
mod body;
mod claims;
mod config;
mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod leader;
mod metrics;
mod middleware;
mod openapi;
mod routes;
mod server;
pub mod tokens;
mod write_timeout;

pub use config::{Auth, CountsFn, Limits, ServerConfig, Tls};
pub use leader::Leader;
pub use openapi::{document, documented};
pub use server::{ServeError, Server};
