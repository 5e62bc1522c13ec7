//! Writes the groups of the commit loop as entries of the log.

use std::num::NonZeroU64;
use std::sync::Arc;

use async_trait::async_trait;
use qo_broker::rows::{RowGroup, RowWriter, WriterCheck};
use qo_engine::EngineError;
use qo_store::runtime::BoxFuture;

use super::proposer::Proposer;
use crate::proposal::Proposal;

/// Proposes each group as one entry.
pub(super) struct GroupWriter {
    pub(super) proposer: Proposer,
    pub(super) in_flight_max: usize,
    /// The number of the last group.
    pub(super) number: u64,
}

#[async_trait]
impl RowWriter for GroupWriter {
    fn write(&mut self, group: RowGroup) -> BoxFuture<Result<Option<NonZeroU64>, EngineError>> {
        self.number += 1;
        let proposal = Proposal::group(
            group.now,
            self.proposer.epoch(),
            self.number,
            &group.commands,
            &group.writes,
        );
        let applied = self.proposer.propose(proposal);
        // A barrier precedes every group, so the index is not 0.
        Box::pin(async move { applied.await.map(|applied| NonZeroU64::new(applied.index)) })
    }

    fn drained(&self) -> BoxFuture<()> {
        self.proposer.reached(self.number)
    }

    fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn names_commands(&self) -> bool {
        true
    }

    fn ended(&self) -> BoxFuture<EngineError> {
        let lost = self.proposer.lost();
        Box::pin(async move {
            lost.await;
            EngineError::NotLeader
        })
    }

    async fn close(&mut self) {}
}

/// Confirms reads by asking a majority whether this node still leads.
pub(super) struct LeaderCheck(pub(super) Proposer);

#[async_trait]
impl WriterCheck for LeaderCheck {
    async fn check(&self) -> Result<(), EngineError> {
        self.0.confirm().await
    }
}

const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Arc<LeaderCheck>>();
};
