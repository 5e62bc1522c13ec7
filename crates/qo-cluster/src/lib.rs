//! Cluster mode: three or five nodes with local disks hold one queue, replicated with Raft. No object store is needed.
//!
//! ```text
//! callers ──► the leader's commit loop decides ──► one entry of the log: rows and the commands that changed them
//!                                                       │  openraft replicates it; a majority syncs it: committed
//!                                                       ▼
//!                             every node writes the rows to its database ──► the callers get their responses
//! ```
//!
//! The leader runs the commit loop of broker mode. A group of changes becomes one [`proposal`]: the rows that change, and the commands
//! that changed them. Nodes do not execute commands, so nodes of different versions cannot reach different results. The rows are those
//! of broker mode ([`qo_broker::rows`]).
//!
//! | module | content |
//! | --- | --- |
//! | [`proposal`] | the format of entries, and which of them count |
//! | [`log`], [`log_bound`] | the log and the vote on disk, and how much of the log is kept |
//! | [`rows`], [`machine`] | the rows on disk, applying entries, snapshots |
//! | [`network`] | messages between nodes, and their authentication |
//! | [`groups`] | a node: its groups, which have a leader in common |
//! | [`leader`] | taking over, serving, the time of the cluster, large payloads; old reads on other nodes |
//! | [`runtime`] | openraft on the runtime of the node |
//!
//! `docs/internals/cluster-mode.md` describes it as a whole. The tables of what a crash after each step leaves are in the modules.

mod blocking;
mod codec;
mod config;
mod disk_full;
mod engine;
mod error;
mod groups;
mod identity;
mod leader;
mod log;
mod log_bound;
mod log_lines;
mod machine;
mod members;
mod network;
mod node;
mod proposal;
mod raft_types;
mod rows;
mod runtime;
mod status;
#[cfg(test)]
mod storage_suite;

pub use blocking::{BlockingJob, BlockingPool};
pub use config::{
    ClusterConfig, ClusterSecret, GROUPS_MAX, Member, PAYLOAD_MAX_BYTES, PROTOCOL, SECRET_MIN_BYTES,
};
pub use engine::ClusterEngine;
pub use error::ClusterError;
pub use groups::NodeGroups;
pub use leader::{NodeObjects, StaleEngine};
pub use log::{LogFiles, LogStore};
pub use machine::StateMachine;
pub use network::{PendingResponse, Service, Transport, TransportError};
pub use node::{ClusterNode, NodeParts};
pub use proposal::{Applied, EntryOutcome, LoggedCommand, Proposal};
pub use raft_types::TypeConfig;
#[cfg(any(test, feature = "test-util"))]
pub use rows::MemoryRows;
pub use rows::{RowChange, RowSnapshot, RowStage, RowStore};
pub use status::{ClusterStatus, GroupStatus, LogLine, MemberStatus};
