//! Makes the leader of group 0 the leader of all groups.
//!
//! Only group 0 elects by timeouts. If every group did, they would elect different leaders, and handing the lead over would race with
//! elections that other nodes start meanwhile, because a transfer ends the lease of the old leader on every node. In the other groups a node
//! stands for election only here:
//!
//! | this node leads group 0 | it leads the other group | then |
//! | --- | --- | --- |
//! | yes | no | it stands for election, unless a leader of that group is alive |
//! | yes | yes | nothing; if it has begun to hand this term over, it finishes that, because it can propose nothing any more, and gets the group back |
//! | no | yes | it hands the group over to the leader of group 0, once that node has the whole log |
//! | no | no | nothing; if the leader of group 0 is new, or was elected again after a restart, and cannot win, because this node has entries that it lacks, this node stands a moment later |
//!
//! Standing is harmless at any time: a node first asks whether a majority would vote for it (pre-vote), and nobody does while it hears from a
//! leader. But each election starts over with a higher term, so a node that stood for election waits an election timeout before it stands again.
//! On slow machines votes would otherwise always arrive too late. All of this only decides who leads. Each group is safe without it, whoever leads.
//!
//! If one group of a node has failed, for example because of its disk, the node also stops its other groups. Otherwise it would lead group 0
//! without being able to lead the failed group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use qo_store::runtime::RuntimeExt;

use crate::node::ClusterNode;

/// What this node sees of a group.
#[derive(Debug, Clone, Default)]
struct Seen {
    leads: bool,
    leader: Option<u64>,
    term: u64,
    voters: BTreeSet<u64>,
    last: Option<u64>,
    /// The last entry that each other node has. Only the leader knows this.
    matched: BTreeMap<u64, Option<u64>>,
    has_failed: bool,
}

/// What to do in a group.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Stand,
    HandTo(u64),
}

fn look(node: &ClusterNode) -> Seen {
    let metrics = node.shared.raft.metrics();
    let metrics = metrics.borrow_watched();
    let matched = metrics.replication.iter().flatten();
    Seen {
        leads: metrics.state == ServerState::Leader,
        leader: metrics.current_leader,
        term: metrics.current_term,
        voters: metrics.membership_config.voter_ids().collect(),
        last: metrics.last_log_index,
        matched: matched
            .map(|(node, id)| (*node, id.as_ref().map(|id| id.index)))
            .collect(),
        has_failed: metrics.running_state.is_err(),
    }
}

/// Decides what to do in a group. `waited` says that the leader of group 0 has had time to take the group. `handed` is the term of the group
/// that this node began to hand over. `is_outdated` says that the group has had no election since the last one of group 0: then its leader
/// may be known, and yet have restarted without the last entries.
fn decide(
    me: u64,
    guide: &Seen,
    seen: &Seen,
    waited: bool,
    handed: Option<u64>,
    is_outdated: bool,
) -> Step {
    if !seen.voters.contains(&me) {
        return Step::Nothing;
    }
    let others = || seen.voters.iter().filter(|node| **node != me);
    let has_all = |node: &u64| seen.matched.get(node).copied().flatten() >= seen.last;
    match (guide.leads, seen.leads) {
        (true, false) => Step::Stand,
        (true, true) if handed == Some(seen.term) => {
            let next = others().max_by_key(|node| seen.matched.get(node).copied().flatten());
            next.map_or(Step::Nothing, |next| Step::HandTo(*next))
        }
        (false, true) => {
            let next = others().find(|node| guide.leader == Some(**node) && has_all(node));
            next.map_or(Step::Nothing, |next| Step::HandTo(*next))
        }
        // While the leader that both groups know is silent, group 0 elects first.
        (false, false)
            if waited && guide.leader.is_some() && (guide.leader != seen.leader || is_outdated) =>
        {
            Step::Stand
        }
        (true, true) | (false, false) => Step::Nothing,
    }
}

/// What was done in a group.
#[derive(Debug, Default)]
struct Done {
    /// The term that this node began to hand over, and when.
    handed: Option<u64>,
    handed_at: Duration,
    /// When this node last stood for election.
    stood_at: Option<Duration>,
    /// The leader and the term of the group, and the term of group 0 when they last changed.
    reign: (Option<u64>, u64),
    guide_term: u64,
}

impl Done {
    /// Whether the group has had no election since the last one of group 0.
    fn is_outdated(&mut self, guide: &Seen, seen: &Seen) -> bool {
        let reign = (seen.leader, seen.term);
        if self.reign != reign {
            self.reign = reign;
            self.guide_term = guide.term;
        }
        self.guide_term < guide.term
    }
}

/// Runs until the node is stopped.
pub(super) async fn steer(groups: Vec<ClusterNode>) {
    let Some((first, others)) = groups.split_first() else {
        return;
    };
    let (runtime, config) = (&first.shared.runtime, &first.shared.config);
    let me = config.node;
    let interval = config.heartbeat / 3;
    let head_start = config.election.0 / 2;
    let mut done: Vec<Done> = others.iter().map(|_| Done::default()).collect();
    let mut known = (None, 0);
    let mut wait_until = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = first.shared.stopped() => return,
            () = runtime.sleep(interval) => {}
        }
        let guide = look(first);
        let now = runtime.monotonic();
        if (guide.leader, guide.term) != known {
            known = (guide.leader, guide.term);
            // Nodes must not wait equally long.
            let millis = u64::try_from(head_start.as_millis()).unwrap_or(u64::MAX);
            let jitter = Duration::from_millis(runtime.random_below(millis.max(1)));
            wait_until = now + head_start + jitter;
        }
        let mut has_failed = guide.has_failed;
        for (group, done) in others.iter().zip(&mut done) {
            let seen = look(group);
            has_failed |= seen.has_failed;
            let trigger = group.shared.raft.trigger();
            // An error means that the group has failed, which the next look shows.
            let waited = now >= wait_until;
            let is_outdated = done.is_outdated(&guide, &seen);
            match decide(me, &guide, &seen, waited, done.handed, is_outdated) {
                Step::Stand if done.stood_at.is_none_or(|at| now >= at + config.election.0) => {
                    done.stood_at = Some(now);
                    let _ = trigger.elect(true).await;
                }
                Step::HandTo(next) if now >= done.handed_at + config.election.0 => {
                    tracing::debug!(group = %group.shared.config.data.display(), next, "handing a group over");
                    done.handed = Some(seen.term);
                    done.handed_at = now;
                    let _ = trigger.transfer_leader(next).await;
                }
                Step::Nothing | Step::Stand | Step::HandTo(_) => {}
            }
        }
        if has_failed {
            if first.shared.is_stopped() {
                return;
            }
            tracing::error!(
                node = me,
                "a group of this node has failed, so the others stop, too"
            );
            for group in &groups {
                group.shutdown().await;
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of three nodes as node 1 sees it.
    fn seen(leader: Option<u64>) -> Seen {
        Seen {
            leads: leader == Some(1),
            leader,
            term: 5,
            voters: BTreeSet::from([1, 2, 3]),
            last: Some(9),
            ..Seen::default()
        }
    }

    fn led(matched: [(u64, Option<u64>); 2]) -> Seen {
        Seen {
            matched: BTreeMap::from(matched),
            ..seen(Some(1))
        }
    }

    #[test]
    fn the_leader_of_group_0_stands_and_others_only_later() {
        let stands = |guide: Option<u64>, group: Option<u64>, waited: bool| {
            decide(1, &seen(guide), &seen(group), waited, None, false) == Step::Stand
        };
        assert!(stands(Some(1), None, false));
        assert!(stands(Some(1), Some(2), false));
        // Node 2 leads group 0 and has had its time.
        assert!(!stands(Some(2), None, false));
        assert!(stands(Some(2), None, true));
        assert!(stands(Some(2), Some(3), true));
        // It may have died: group 0 elects first.
        assert!(!stands(Some(2), Some(2), true));
        assert!(!stands(None, None, true));
        // A node that does not vote never stands.
        let mut without_me = seen(None);
        without_me.voters.remove(&1);
        assert_eq!(
            decide(1, &seen(Some(1)), &without_me, true, None, true),
            Step::Nothing
        );
    }

    #[test]
    fn a_group_is_handed_to_a_node_that_has_its_log() {
        let group = led([(2, Some(9)), (3, Some(8))]);
        let hand = |guide: Option<u64>| decide(1, &seen(guide), &group, true, None, false);
        assert_eq!(hand(Some(2)), Step::HandTo(2));
        assert_eq!(hand(Some(3)), Step::Nothing);
        assert_eq!(hand(None), Step::Nothing);
        assert_eq!(hand(Some(4)), Step::Nothing);
        assert_eq!(hand(Some(1)), Step::Nothing);
    }

    #[test]
    fn a_group_that_is_being_handed_over_is_not_kept() {
        let group = led([(2, Some(7)), (3, Some(8))]);
        let guide = seen(Some(1));
        let step = |handed: u64| decide(1, &guide, &group, true, Some(handed), false);
        assert_eq!(step(5), Step::HandTo(3));
        assert_eq!(step(4), Step::Nothing);
    }

    /// The leader of all groups restarts, loses the last entries of a group, and leads group 0 again.
    #[test]
    fn a_node_with_more_entries_stands_although_the_leader_is_the_same() {
        let mut done = Done::default();
        let (mut guide, group) = (seen(Some(2)), seen(Some(2)));
        assert!(!done.is_outdated(&guide, &group));
        guide.term += 1;
        assert!(done.is_outdated(&guide, &group));
        let step = |waited, is_outdated| decide(1, &guide, &group, waited, None, is_outdated);
        assert_eq!(step(false, true), Step::Nothing);
        assert_eq!(step(true, true), Step::Stand);
        let elected = Seen {
            term: group.term + 1,
            ..group.clone()
        };
        assert!(!done.is_outdated(&guide, &elected));
    }
}
