//! Initializes a new cluster.
//!
//! A node that initializes a cluster stands for election at once, without asking first whether it would win. Votes are ordered by term and then by
//! node, so a node with a higher number that initializes later would depose the leader that the others have elected meanwhile: leadership would
//! move a moment after the cluster has started to serve. So the first member initializes the cluster. Each of the others waits for a leader,
//! longer the later it comes in the list of members, and initializes only if it hears from none, because the members before it do not run.
//!
//! | fault | effect |
//! | --- | --- |
//! | the first member does not run | the second one begins some seconds later; the first gets everything when it starts |
//! | several members begin, because they do not reach each other | all begin with the same members, so a majority elects one leader, and the others follow it |
//! | a member begins that has data | openraft refuses it, and nothing happens |

use std::time::Duration;

use openraft::async_runtime::WatchReceiver;

use crate::node::ClusterNode;

/// Begins a new cluster when it is this node's turn, unless there is one.
pub(super) async fn begin(group: ClusterNode) {
    let (shared, config) = (&group.shared, &group.shared.config);
    let mut members: Vec<u64> = config.members.iter().map(|member| member.node).collect();
    members.sort_unstable();
    let Some(rank) = members.iter().position(|node| *node == config.node) else {
        // It waits until it is added.
        return;
    };
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    let turn = config.election.1.saturating_mul(rank.saturating_mul(2));
    let began = shared.runtime.monotonic();
    while shared.runtime.monotonic().saturating_sub(began) < turn {
        if is_part_of_a_cluster(&group) || pause(&group, config.heartbeat).await {
            return;
        }
    }
    if is_part_of_a_cluster(&group) {
        return;
    }
    if let Err(error) = group.initialize().await {
        // The state of the node shows it, too.
        tracing::error!(%error, "this node cannot initialize the cluster");
        return;
    }
    // The election that this began fails if the others do not run yet. The other groups follow the leader of group 0.
    while shared.guide.is_none() && !has_leader(&group) {
        if pause(&group, config.heartbeat).await || shared.raft.trigger().elect(true).await.is_err()
        {
            return;
        }
    }
}

/// Waits. Returns whether the node was stopped.
async fn pause(group: &ClusterNode, pause: Duration) -> bool {
    tokio::select! {
        biased;
        () = group.shared.stopped() => true,
        () = group.shared.runtime.sleep(pause) => false,
    }
}

/// Whether this node has a log, or has heard from another one.
fn is_part_of_a_cluster(group: &ClusterNode) -> bool {
    let metrics = group.shared.raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.last_log_index.is_some() || metrics.current_leader.is_some()
}

fn has_leader(group: &ClusterNode) -> bool {
    let metrics = group.shared.raft.metrics();
    metrics.borrow_watched().current_leader.is_some()
}
