//! An operator who replaces nodes while clients work: a new node is added and promoted, and an old one is removed and stopped.

use std::sync::Arc;
use std::time::Duration;

use qo_check::Promise;
use qo_cluster::{ClusterError, Member, NodeGroups};
use qo_store::runtime::BoxFuture;
use tokio::sync::oneshot;

use super::run::{NODES, NODES_MAX, Stage};
use crate::random::Random;
use crate::sched::{HARNESS, lock};

/// How long a step may take before it is tried again.
const STEP_MAX: Duration = Duration::from_secs(20);
/// How often a step is tried.
const TRIES: usize = 300;

/// A node as the others know it.
pub(super) fn member(node: u64) -> Member {
    Member::new(node, format!("n{node}"), format!("http://n{node}"))
}

impl Stage {
    /// Replaces nodes until the faults end.
    pub(super) async fn replace_nodes(self: Arc<Self>) {
        let mut dice = Random::of(&[self.seed, 0x09e4]);
        for new in NODES + 1..=NODES_MAX {
            self.scheduler.sleep(dice.millis(3_000, 20_000)).await;
            if self.is_calm() || !self.replace_one(&mut dice, new).await {
                break;
            }
        }
        self.set_operator_done();
    }

    async fn replace_one(self: &Arc<Self>, dice: &mut Random, new: u64) -> bool {
        self.scheduler.note(HARNESS, || format!("n{new} joins"));
        self.begin_node(new);
        let added = self.change(dice, |node| {
            Box::pin(async move { node.add(member(new)).await })
        });
        if !added.await {
            return false;
        }
        let promoted = self.change(dice, |node| {
            Box::pin(async move { node.promote(new).await })
        });
        if !promoted.await {
            return false;
        }
        let old: Vec<u64> = self
            .present()
            .into_iter()
            .filter(|node| *node != new)
            .collect();
        let place = usize::try_from(dice.below(old.len() as u64)).unwrap_or_default();
        let Some(old) = old.get(place).copied() else {
            return false;
        };
        let removed = self.change(dice, |node| Box::pin(async move { node.remove(old).await }));
        if !removed.await {
            return false;
        }
        self.scheduler.note(HARNESS, || format!("n{old} leaves"));
        self.retire(old);
        true
    }

    /// Makes a change through any node, again and again until it is made.
    async fn change(
        &self,
        dice: &mut Random,
        call: impl Fn(NodeGroups) -> BoxFuture<Result<(), ClusterError>>,
    ) -> bool {
        for _ in 0..TRIES {
            let node = self.any_node(dice);
            let running = {
                let state = lock(&self.state);
                let found = state.nodes.get(&node);
                found.and_then(|(process, node)| Some((*process, node.clone()?)))
            };
            if let Some((process, node)) = running {
                let (reply, response) = oneshot::channel();
                let calling = call(node);
                self.scheduler.spawn(
                    process,
                    Box::pin(async move {
                        let _ = reply.send(calling.await);
                    }),
                );
                let changed = tokio::select! {
                    biased;
                    response = response => response.ok(),
                    () = self.scheduler.sleep(STEP_MAX) => None,
                };
                match changed {
                    Some(Ok(())) => return true,
                    // An earlier try was successful.
                    Some(Err(ClusterError::Membership(reason)))
                        if reason.contains("is not a member") =>
                    {
                        return true;
                    }
                    _ => {}
                }
            }
            if self.is_over() {
                return false;
            }
            self.scheduler.sleep(dice.millis(100, 1_000)).await;
        }
        self.breach(Promise::Run, "the members cannot be changed".to_owned());
        false
    }
}
