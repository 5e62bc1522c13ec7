//! What a node reports about itself and the cluster.

use std::collections::BTreeSet;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use qo_core::Timestamp;
use serde::Serialize;

use crate::node::ClusterNode;
use crate::proposal::LoggedCommand;

/// The state of a node, and of the cluster as it knows it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The name of the cluster.
    pub cluster: String,
    /// This node.
    pub node: u64,
    /// `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub state: String,
    /// Whether this node leads and has loaded the queue.
    pub serving: bool,
    /// The term of the election.
    pub term: u64,
    /// The leader, if there is one.
    pub leader: Option<u64>,
    /// The members of the cluster.
    pub members: Vec<MemberStatus>,
    /// The first entry of the log that is kept.
    pub log_first: u64,
    /// The last entry of the log.
    pub log_last: Option<u64>,
    /// The size of the log in bytes.
    pub log_bytes: u64,
    /// How long the last sync of the log took, in milliseconds.
    pub sync_ms: f64,
    /// Whether the disk of the log or of the rows is full, so that this node accepts no changes.
    pub disk_full: bool,
    /// The last entry that is applied.
    pub applied: Option<u64>,
    /// The last entry that the last snapshot contains.
    pub snapshot: Option<u64>,
    /// The barrier of the leader whose groups are applied.
    pub epoch: u64,
    /// The time of the last entry that carried one.
    pub time: Timestamp,
    /// The groups, if there are several. The fields that exist once per group, such as the term, are then those of group 0 above, except the
    /// size of the log, which is that of all groups, and the lag of a member, which is that in the group where it is furthest behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
    /// Why the node has stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The state of one group.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct GroupStatus {
    /// Its number, from 0.
    pub group: u16,
    /// `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub state: String,
    /// Whether this node leads the group and has loaded its tasks.
    pub serving: bool,
    /// The term of the election.
    pub term: u64,
    /// The leader, if there is one.
    pub leader: Option<u64>,
    /// The first entry of the log that is kept.
    pub log_first: u64,
    /// The last entry of the log.
    pub log_last: Option<u64>,
    /// The size of the log in bytes.
    pub log_bytes: u64,
    /// The last entry that is applied.
    pub applied: Option<u64>,
    /// How many entries the member is behind that is furthest behind. Only the leader knows this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

/// A member of the cluster.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its number.
    pub node: u64,
    /// Its address for other nodes.
    pub address: String,
    /// Its URL for clients.
    pub url: String,
    /// Whether it votes. A member that does not vote only receives the log.
    pub voter: bool,
    /// The last entry that it has, as the leader knows. Only the leader knows this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched: Option<u64>,
    /// How many entries it is behind the leader. Only the leader knows this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

/// An entry of the log.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LogLine {
    /// Its index.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
    /// The node that proposed it.
    pub node: u64,
    /// `group`, `barrier`, `rows`, `sweep`, `members` or `blank`.
    pub kind: &'static str,
    /// The leader's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The number of rows that it changes.
    pub rows: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// The commands of a group.
    pub commands: Vec<LoggedCommand>,
    /// The voters, if it changes the members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub voters: Vec<u64>,
}

impl GroupStatus {
    pub(crate) fn new(group: u16, status: ClusterStatus) -> Self {
        Self {
            group,
            lag: status.members.iter().filter_map(|member| member.lag).max(),
            state: status.state,
            serving: status.serving,
            term: status.term,
            leader: status.leader,
            log_first: status.log_first,
            log_last: status.log_last,
            log_bytes: status.log_bytes,
            applied: status.applied,
        }
    }
}

impl ClusterStatus {
    /// How many entries a member is behind, if this node leads.
    pub(crate) fn lag_of(&self, node: u64) -> Option<u64> {
        let member = self.members.iter().find(|member| member.node == node);
        member.and_then(|member| member.lag)
    }
}

impl ClusterNode {
    /// Whether this node leads the group. It may not serve it yet.
    pub(crate) fn is_leader(&self) -> bool {
        self.shared.raft.metrics().borrow_watched().state == ServerState::Leader
    }

    /// The term of the group.
    pub(crate) fn term(&self) -> u64 {
        self.shared.raft.metrics().borrow_watched().current_term
    }

    /// Whether a node is a member of the group.
    pub(crate) fn has_member(&self, node: u64) -> bool {
        let metrics = self.shared.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.get_node(&node).is_some()
    }

    /// The state of this group.
    pub fn status(&self) -> ClusterStatus {
        let metrics = self.shared.raft.metrics();
        let metrics = metrics.borrow_watched().clone();
        let log = self.shared.log.stats();
        let applied = *self.shared.applied.borrow();
        let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
        let members = metrics.membership_config.nodes().map(|(node, member)| {
            let matched = match &metrics.replication {
                Some(_) if *node == metrics.id => metrics.last_log_index,
                Some(replication) => replication
                    .get(node)
                    .and_then(|matched| matched.as_ref().map(|id| id.index)),
                None => None,
            };
            let lag = metrics
                .replication
                .as_ref()
                .and(metrics.last_log_index)
                .map(|last| last.saturating_sub(matched.unwrap_or(0)));
            MemberStatus {
                node: *node,
                address: member.address.clone(),
                url: member.url.clone(),
                voter: voters.contains(node),
                matched,
                lag,
            }
        });
        let state = match metrics.state {
            ServerState::Leader => "leader",
            ServerState::Follower => "follower",
            ServerState::Candidate => "candidate",
            ServerState::Learner => "learner",
            ServerState::Shutdown => "stopped",
        };
        ClusterStatus {
            cluster: self.shared.config.cluster.clone(),
            node: self.shared.config.node,
            state: state.to_owned(),
            serving: self.is_serving(),
            term: metrics.current_term,
            leader: metrics.current_leader,
            members: members.collect(),
            log_first: log.first_index,
            log_last: log.last_index,
            log_bytes: log.bytes,
            sync_ms: log.last_sync.as_secs_f64() * 1_000.0,
            disk_full: self.shared.log.full().is_full(),
            applied: applied.index,
            snapshot: metrics.snapshot.map(|id| id.index),
            epoch: applied.epoch,
            time: applied.time,
            groups: Vec::new(),
            failure: metrics.running_state.err().map(|error| error.to_string()),
        }
    }
}
