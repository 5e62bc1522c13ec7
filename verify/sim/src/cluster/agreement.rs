//! Whether all members have the same rows in the end.

use std::time::Duration;

use qo_check::Promise;
use qo_cluster::{ClusterStatus, NodeGroups};

use super::run::Stage;

impl Stage {
    /// Checks that all nodes have the same rows.
    pub(super) async fn compare(&self) {
        for _ in 0..60 {
            let members = self.members();
            let applied: Vec<_> = self
                .nodes()
                .iter()
                .filter(|node| members.contains(&node.id()))
                .map(|node| {
                    let groups = group_statuses(node).into_iter();
                    let states = groups.map(|status| (status.log_last, status.applied));
                    states.collect::<Vec<_>>()
                })
                .collect();
            let settled = applied.len() == members.len()
                && applied.iter().all(|groups| {
                    *groups == applied[0] && groups.iter().all(|state| state.0 == state.1)
                });
            if settled {
                for group in 0..usize::from(self.faults.groups) {
                    self.compare_rows(group);
                }
                return;
            }
            self.scheduler.sleep(Duration::from_millis(500)).await;
        }
        let states = self.states();
        let what = format!("the nodes do not agree in the end: {states:?}");
        self.breach(Promise::Run, what);
    }

    /// The state of each group of each node, for people.
    pub(super) fn states(&self) -> Vec<String> {
        let nodes = self.nodes();
        let statuses = nodes.iter().flat_map(group_statuses);
        statuses
            .map(|status| {
                format!(
                    "{} {} term {} log {:?} applied {:?} {:?}",
                    status.node,
                    status.state,
                    status.term,
                    status.log_last,
                    status.applied,
                    status.failure
                )
            })
            .collect()
    }

    /// Checks that all members have the same rows of a group.
    fn compare_rows(&self, group: usize) {
        let members = self.members();
        let mut rows = Vec::new();
        for node in self.nodes() {
            if !members.contains(&node.id()) {
                continue;
            }
            match node.groups()[group].synced_rows() {
                Ok(read) => rows.push(read),
                Err(error) => self.breach(Promise::Run, format!("node {}: {error}", node.id())),
            }
        }
        for other in &rows {
            let missing = rows[0].iter().find(|row| !other.contains(row));
            let surplus = other.iter().find(|row| !rows[0].contains(row));
            if missing.is_some() || surplus.is_some() {
                let what = format!(
                    "the nodes have different rows in group {group}: {missing:?} and {surplus:?}"
                );
                self.breach(Promise::NothingLost, what);
            }
        }
    }

    /// The members of the cluster, as its leader knows them.
    fn members(&self) -> Vec<u64> {
        let nodes = self.nodes();
        let leader = nodes.iter().find(|node| node.is_serving());
        leader.map_or_else(Vec::new, |leader| {
            let members = leader.status().members;
            members.iter().map(|member| member.node).collect()
        })
    }
}

/// The status of each group of a node.
fn group_statuses(node: &NodeGroups) -> Vec<ClusterStatus> {
    let groups = node.groups().iter();
    groups.map(qo_cluster::ClusterNode::status).collect()
}
