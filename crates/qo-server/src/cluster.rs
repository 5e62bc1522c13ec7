//! The interface to the node of a cluster that this process is.

use qo_store::runtime::BoxFuture;
use serde_json::Value;

/// The node of a cluster. The server shows its state and passes changes of the members on to it.
pub trait ClusterControl: Send + Sync + 'static {
    /// The state of this node, and of the cluster as it knows it.
    fn status(&self) -> Value;

    /// Entries of the log of a group on this node, as an array.
    fn log(
        &self,
        group: u16,
        from: Option<u64>,
        limit: usize,
    ) -> BoxFuture<Result<Value, ClusterFailure>>;

    /// Carries out a change.
    fn change(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterFailure>>;

    /// The gauges of this node: name, explanation, labels and value.
    fn gauges(&self) -> Vec<ClusterGauge>;
}

/// A change of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterChange {
    /// Adds a member that does not vote yet.
    Add {
        /// Its number.
        node: u64,
        /// Where the other nodes reach it.
        address: String,
        /// Where clients reach it.
        url: String,
    },
    /// Lets a member vote.
    Promote(u64),
    /// Removes a member.
    Remove(u64),
    /// Makes a snapshot of this node, so that the log before it can be deleted.
    Snapshot,
}

/// Why a change of a cluster failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterFailure {
    /// Only the leader can do this.
    NotLeader {
        /// The leader's URL, if it is known.
        leader: Option<String>,
    },
    /// The change is invalid.
    Refused(String),
    /// The node failed.
    Failed(String),
}

/// A gauge of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterGauge {
    /// The name of the metric.
    pub name: &'static str,
    /// What it measures.
    pub help: &'static str,
    /// The label `node`, for gauges of other members.
    pub node: Option<u64>,
    /// The label `group`, in a cluster with several groups.
    pub group: Option<u16>,
    /// Its value.
    pub value: f64,
}
