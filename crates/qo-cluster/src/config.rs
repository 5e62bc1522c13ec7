//! Settings of a node.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use qo_broker::BrokerConfig;
use serde::{Deserialize, Serialize};

use crate::error::ClusterError;

/// The largest input or output. It goes through the log in parts of [`CHUNK_BYTES`].
pub const PAYLOAD_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// How much of a large payload one entry of the log contains.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;
/// The versions of the protocol between nodes that this version of qo speaks. Two nodes use the newest that both speak, so that nodes
/// can be updated one after the other.
pub const PROTOCOL: RangeInclusive<u32> = 1..=1;
/// The most groups of a cluster. Claims ask all of them, and each has a log and a database of its own.
pub const GROUPS_MAX: u16 = 64;
/// The shortest secret.
pub const SECRET_MIN_BYTES: usize = 16;
/// The longest name of a cluster, address and URL.
const TEXT_MAX_BYTES: usize = 512;
/// The least share of an amount of memory that a group gets.
const SHARE_MIN_BYTES: usize = 2 * 1024 * 1024;
/// The most initial members.
const MEMBERS_MAX: usize = 15;

/// A node as the others know it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number, from 1.
    pub node: u64,
    /// `host:port` at which the other nodes reach it.
    pub address: String,
    /// The URL at which clients reach it.
    pub url: String,
}

impl Member {
    /// A member with this number and these addresses.
    pub fn new(node: u64, address: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            node,
            address: address.into(),
            url: url.into(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ClusterError> {
        if self.node == 0 {
            return Err(ClusterError::invalid("node numbers start at 1"));
        }
        let is_bad = |text: &str| text.is_empty() || text.len() > TEXT_MAX_BYTES;
        if is_bad(&self.address) || self.url.len() > TEXT_MAX_BYTES {
            return Err(ClusterError::invalid(format!(
                "node {} needs an address host:port, and no text may be longer than {TEXT_MAX_BYTES} bytes",
                self.node
            )));
        }
        Ok(())
    }
}

/// The secret that the nodes of a cluster share. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Vec<u8>);

impl ClusterSecret {
    /// A secret of at least [`SECRET_MIN_BYTES`] bytes.
    pub fn new(secret: impl Into<Vec<u8>>) -> Result<Self, ClusterError> {
        let secret = secret.into();
        if secret.len() < SECRET_MIN_BYTES {
            return Err(ClusterError::invalid(format!(
                "the secret of the cluster has {} bytes; use at least {SECRET_MIN_BYTES} random ones, the same on every node",
                secret.len()
            )));
        }
        Ok(Self(secret))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

/// Settings of a node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// The number of this node, from 1.
    pub node: u64,
    /// The name of the cluster. Nodes of clusters with other names are refused.
    pub cluster: String,
    /// The data directory. One node uses it at a time.
    pub data: PathBuf,
    /// Where to listen for the other nodes.
    pub listen: SocketAddr,
    /// The secret that all nodes share.
    pub secret: ClusterSecret,
    /// The first members, this node among them. Used only if the data directory is empty. Without members the node waits until
    /// another one adds it.
    pub members: Vec<Member>,
    /// How many Raft groups the tasks are divided over, from 1. It is fixed when the data directory is made, and the same on every node.
    pub groups: u16,
    /// Settings that all broker engines share.
    pub broker: BrokerConfig,
    /// How long finished tasks are kept.
    pub retention: Duration,
    /// How often the leader shows that it is alive.
    pub heartbeat: Duration,
    /// After how long without a leader a node stands for election, at least and at most.
    pub election: (Duration, Duration),
    /// After how many entries the rows are synced, so that the log before them can be deleted.
    pub snapshot_entries: u64,
    /// How many entries before that are kept for nodes that are behind.
    pub kept_entries: u64,
    /// The same by size: after how many bytes of log the rows are synced. With several groups, each has its share of it.
    pub snapshot_bytes: u64,
    /// The size of a log file.
    pub segment_bytes: u64,
    /// How many bytes of changed rows are collected in memory before they are written together. Up to twice as many are in memory. With
    /// several groups, each has its share of it.
    pub collected_bytes: usize,
    /// How many groups may be in flight at once.
    pub in_flight_max: usize,
    /// How long a new leader ends no leases, so that their workers can find it.
    pub takeover_grace: Duration,
    /// How often expired rows are deleted.
    pub sweep_interval: Duration,
    /// How often the payloads of dropped tasks are deleted.
    pub cleanup_interval: Duration,
    /// The versions of the protocol between nodes that this node speaks: [`PROTOCOL`], except in tests of updates.
    pub protocol: RangeInclusive<u32>,
}

impl ClusterConfig {
    /// The default settings of a node.
    pub fn new(
        node: u64,
        cluster: impl Into<String>,
        data: impl Into<PathBuf>,
        listen: SocketAddr,
        secret: ClusterSecret,
    ) -> Self {
        Self {
            node,
            cluster: cluster.into(),
            data: data.into(),
            listen,
            secret,
            members: Vec::new(),
            groups: 1,
            broker: BrokerConfig::default(),
            retention: Duration::from_hours(24),
            heartbeat: Duration::from_millis(150),
            election: (Duration::from_millis(600), Duration::from_millis(1_200)),
            snapshot_entries: 20_000,
            kept_entries: 1_000,
            snapshot_bytes: 256 * 1024 * 1024,
            segment_bytes: 64 * 1024 * 1024,
            collected_bytes: 8 * 1024 * 1024,
            in_flight_max: 64,
            takeover_grace: Duration::from_secs(2),
            sweep_interval: Duration::from_secs(30),
            cleanup_interval: Duration::from_mins(10),
            protocol: PROTOCOL,
        }
    }

    /// What a group gets of memory that all groups of the node share.
    pub(crate) fn share(&self, bytes: usize) -> usize {
        (bytes / usize::from(self.groups.max(1))).max(SHARE_MIN_BYTES)
    }

    pub(crate) fn check(&self) -> Result<(), ClusterError> {
        if self.node == 0 {
            return Err(ClusterError::invalid("node numbers start at 1"));
        }
        if self.cluster.is_empty() || self.cluster.len() > TEXT_MAX_BYTES {
            return Err(ClusterError::invalid(format!(
                "the name of the cluster must have 1 to {TEXT_MAX_BYTES} bytes"
            )));
        }
        if !(1..=GROUPS_MAX).contains(&self.groups) {
            return Err(ClusterError::invalid(format!(
                "a cluster has 1 to {GROUPS_MAX} groups, not {}",
                self.groups
            )));
        }
        if self.members.len() > MEMBERS_MAX {
            return Err(ClusterError::invalid(format!(
                "a cluster starts with at most {MEMBERS_MAX} members; 3 or 5 are usual"
            )));
        }
        for member in &self.members {
            member.check()?;
        }
        let mut nodes: Vec<u64> = self.members.iter().map(|member| member.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() != self.members.len() {
            return Err(ClusterError::invalid("two members have the same number"));
        }
        if !nodes.is_empty() && !nodes.contains(&self.node) {
            return Err(ClusterError::invalid(format!(
                "node {} is not among the members; add it to them",
                self.node
            )));
        }
        if self.heartbeat >= self.election.0 || self.election.0 >= self.election.1 {
            return Err(ClusterError::invalid(
                "the heartbeat must be shorter than the election timeouts, and these must differ",
            ));
        }
        Ok(())
    }
}
