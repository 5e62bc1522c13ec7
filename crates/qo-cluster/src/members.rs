//! Changes of the members of a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::errors::{ClientWriteError, RaftError};

use crate::config::Member;
use crate::error::ClusterError;
use crate::node::ClusterNode;
use crate::raft_types::TypeConfig;
use crate::runtime::enter;
use crate::status::MemberStatus;

/// How many entries a new member may be behind, and how often that is looked at.
const CAUGHT_UP_LAG: u64 = 100;
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(50);

impl ClusterNode {
    /// Adds a member that receives the log and does not vote yet. Returns when it has caught up.
    pub async fn add(&self, member: Member) -> Result<(), ClusterError> {
        member.check()?;
        let node = member.node;
        let adding = self.shared.raft.add_learner(node, member, true);
        let added = enter(&self.shared.runtime, adding).await;
        added.map_err(|error| self.refused(error))?;
        loop {
            let status = self.status();
            let Some(member) = status.members.iter().find(|member| member.node == node) else {
                return Err(ClusterError::Membership(format!(
                    "node {node} was removed again"
                )));
            };
            if status.state != "leader" {
                return Err(ClusterError::NotLeader {
                    leader: self.leader(),
                });
            }
            if member.matched.is_some() && member.lag.is_some_and(|lag| lag <= CAUGHT_UP_LAG) {
                return Ok(());
            }
            self.shared.runtime.sleep(CATCH_UP_INTERVAL).await;
        }
    }

    /// Lets a member vote.
    pub async fn promote(&self, node: u64) -> Result<(), ClusterError> {
        let change = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
        self.change(change).await
    }

    /// Removes a member. It should be stopped afterwards.
    pub async fn remove(&self, node: u64) -> Result<(), ClusterError> {
        let status = self.status();
        let Some(member) = status.members.iter().find(|member| member.node == node) else {
            return Err(ClusterError::Membership(format!(
                "node {node} is not a member"
            )));
        };
        if member.voter {
            if status.members.iter().filter(|member| member.voter).count() == 1 {
                return Err(ClusterError::Membership(format!(
                    "node {node} is the only one that votes; promote another one first"
                )));
            }
            let change = ChangeMembers::RemoveVoters(BTreeSet::from([node]));
            self.change(change).await?;
        }
        let is_left = |member: &MemberStatus| member.node == node;
        if self.status().members.iter().any(is_left) {
            let change = ChangeMembers::RemoveNodes(BTreeSet::from([node]));
            self.change(change).await?;
        }
        Ok(())
    }

    async fn change(&self, change: ChangeMembers<u64, Member>) -> Result<(), ClusterError> {
        let changing = self.shared.raft.change_membership(change, false);
        let changed = enter(&self.shared.runtime, changing).await;
        changed.map(drop).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> ClusterError {
        match error {
            RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
                ClusterError::Membership(error.to_string())
            }
            RaftError::APIError(_) => ClusterError::NotLeader {
                leader: self.leader(),
            },
            RaftError::Fatal(error) => ClusterError::Stopped(error.to_string()),
        }
    }
}
