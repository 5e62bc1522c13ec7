//! Messages between nodes.
//!
//! Every message is one request with one response, as bytes ([`wire`]). A [`Transport`] carries them: TCP with mutual authentication
//! ([`tcp`]), or the simulator's network.

mod client;
mod groups;
mod handshake;
mod service;
mod tcp;
pub(crate) mod wire;

use std::time::Duration;

use bytes::Bytes;
use qo_store::runtime::BoxFuture;
use thiserror::Error;

use crate::config::Member;

pub(crate) use client::NetworkFactory;
pub(crate) use groups::{GroupService, GroupTransport};
pub(crate) use service::NodeService;
pub(crate) use tcp::{TcpServer, TcpTransport};

/// Why a request has no response.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The node cannot be reached. Trying again at once is useless.
    #[error("node {node} at {address} cannot be reached: {reason}")]
    Unreachable {
        /// The node.
        node: u64,
        /// Its address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The node refuses this one.
    #[error("node {node} at {address} refuses this node: {reason}")]
    Refused {
        /// The node.
        node: u64,
        /// Its address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The time was up.
    #[error("node {node} did not respond in time")]
    TimedOut {
        /// The node.
        node: u64,
    },
}

/// The response of another node, once it is there.
pub type PendingResponse = BoxFuture<Result<Bytes, TransportError>>;

/// Carries requests to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and waits for its response.
    fn call(&self, target: &Member, request: Bytes, limit: Duration) -> PendingResponse;
}

/// Responds to the requests of other nodes.
pub trait Service: Send + Sync + 'static {
    /// Responds to a request.
    fn handle(&self, from: u64, request: Bytes) -> BoxFuture<Bytes>;
}
