//! Errors of a node.

use std::io;

use qo_engine::EngineError;
use thiserror::Error;

use crate::config::Member;

/// Why a node could not start or an operation on the cluster failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The settings are invalid.
    #[error("{0}")]
    Invalid(String),
    /// The data directory belongs to another node or cluster, or cannot be used.
    #[error("cannot use the data directory {path}: {reason}")]
    DataDirectory {
        /// The directory.
        path: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Reading or writing the local disk failed.
    #[error("the disk of this node failed: {0}")]
    Disk(#[from] io::Error),
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Another node leads.
    #[error("{}", not_leader(leader.as_ref()))]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<Member>,
    },
    /// The change of the membership was refused.
    #[error("the members were not changed: {0}")]
    Membership(String),
    /// The node has stopped.
    #[error("this node has stopped: {0}")]
    Stopped(String),
    /// The queue reported an error.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ClusterError {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(reason.into())
    }
}

fn not_leader(leader: Option<&Member>) -> String {
    match leader {
        Some(leader) => format!(
            "node {} leads this cluster; ask it at {}",
            leader.node, leader.url
        ),
        None => "this cluster has no leader at the moment; try again in a few seconds".to_owned(),
    }
}
