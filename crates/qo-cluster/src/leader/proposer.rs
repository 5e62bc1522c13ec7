//! Proposes entries in order, and receives their outcomes.

use std::sync::Arc;

use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::runtime::{BoxFuture, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

use crate::machine::AppliedPoint;
use crate::network::NodeService;
use crate::proposal::{Applied, EntryOutcome, Proposal};
use crate::runtime::enter;

pub(crate) type Raft = openraft::Raft<crate::raft_types::TypeConfig, crate::machine::StateMachine>;

type Reply = oneshot::Sender<Result<Applied, EngineError>>;

/// How long to wait before a read is confirmed again, if a majority did not respond.
const RETRY: std::time::Duration = std::time::Duration::from_millis(50);

/// Proposes entries for one epoch. Clones share everything.
#[derive(Clone)]
pub(crate) struct Proposer {
    raft: Raft,
    runtime: Arc<dyn Runtime>,
    queue: mpsc::UnboundedSender<(Proposal, Reply)>,
    applied: watch::Receiver<AppliedPoint>,
    /// True once the node no longer leads.
    lost: watch::Receiver<bool>,
    epoch: u64,
}

const _: fn() = || {
    fn is_service<T>() {}
    is_service::<NodeService>();
};

impl Proposer {
    /// Starts the task that sends proposals, in their order.
    pub(crate) fn start(
        raft: Raft,
        runtime: &Arc<dyn Runtime>,
        applied: watch::Receiver<AppliedPoint>,
        lost: watch::Receiver<bool>,
        epoch: u64,
    ) -> Self {
        let (queue, mut proposals) = mpsc::unbounded_channel::<(Proposal, Reply)>();
        let (sending, spawner) = (raft.clone(), Arc::clone(runtime));
        runtime.spawn(Box::pin(enter(runtime, async move {
            while let Some((proposal, reply)) = proposals.recv().await {
                let (responder, response) = ProgressResponder::complete_only();
                if sending
                    .client_write_ff(proposal, Some(responder))
                    .await
                    .is_err()
                {
                    let _ = reply.send(Err(EngineError::Closed));
                    continue;
                }
                spawner.spawn(Box::pin(async move {
                    let result = match response.await {
                        Ok(Ok(response)) => match response.response().outcome {
                            EntryOutcome::Applied => Ok(*response.response()),
                            EntryOutcome::Stale => Err(EngineError::NotLeader),
                        },
                        // The entry may still be committed by another leader.
                        Ok(Err(_)) | Err(_) => Err(EngineError::NotLeader),
                    };
                    // The caller may have gone.
                    let _ = reply.send(result);
                }));
            }
        })));
        Self {
            raft,
            runtime: Arc::clone(runtime),
            queue,
            applied,
            lost,
            epoch,
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Sends a proposal at once. The future resolves when it is applied, or when the node no longer leads.
    pub(crate) fn propose(&self, proposal: Proposal) -> BoxFuture<Result<Applied, EngineError>> {
        let (reply, response) = oneshot::channel();
        // If the task has ended, the reply is dropped.
        let _ = self.queue.send((proposal, reply));
        let lost = self.lost();
        Box::pin(async move {
            tokio::select! {
                biased;
                response = response => response.unwrap_or(Err(EngineError::NotLeader)),
                () = lost => Err(EngineError::NotLeader),
            }
        })
    }

    /// Resolves when the node no longer leads.
    pub(crate) fn lost(&self) -> BoxFuture<()> {
        let mut lost = self.lost.clone();
        Box::pin(async move {
            // The sender is gone only if the node is.
            let _ = lost.wait_for(|is_lost| *is_lost).await;
        })
    }

    /// Resolves when a group is applied, or never will be.
    pub(crate) fn reached(&self, number: u64) -> BoxFuture<()> {
        let (mut applied, epoch, lost) = (self.applied.clone(), self.epoch, self.lost());
        Box::pin(async move {
            let reached = applied.wait_for(|point| point.epoch != epoch || point.number >= number);
            tokio::select! {
                biased;
                _ = reached => {}
                () = lost => {}
            }
        })
    }

    /// Proves that no other leader had taken over when this call began.
    pub(crate) async fn confirm(&self) -> Result<(), EngineError> {
        let lost = self.lost();
        let confirming = enter(&self.runtime, async {
            loop {
                match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
                    // Everything that was committed when the call began is applied now. A barrier would be among it.
                    Ok(_) if self.applied.borrow().epoch == self.epoch => return Ok(()),
                    Ok(_) => return Err(EngineError::NotLeader),
                    Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                        self.runtime.sleep(RETRY).await;
                    }
                    Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => {
                        return Err(EngineError::NotLeader);
                    }
                    Err(RaftError::Fatal(error)) => return Err(stopped(&error.to_string())),
                }
            }
        });
        tokio::select! {
            biased;
            confirmed = confirming => confirmed,
            () = lost => Err(EngineError::NotLeader),
        }
    }
}

/// The error that the node has stopped.
pub(crate) fn stopped(reason: &str) -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: "cluster".to_owned(),
        detail: format!("this node has stopped: {reason}"),
        attempts: 1,
        elapsed: std::time::Duration::ZERO,
        in_doubt: true,
    })
}
