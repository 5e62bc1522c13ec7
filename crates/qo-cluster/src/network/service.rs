//! Responds to the requests of other nodes.

use std::sync::Arc;

use bytes::Bytes;
use openraft::raft::SnapshotResponse;
use openraft::type_config::alias::SnapshotMetaOf;
use qo_store::runtime::{BoxFuture, Runtime};
use tokio::sync::Mutex;

use super::Service;
use super::wire::{self, NodeRequest};
use crate::blocking::{self, BlockingPool};
use crate::codec::DecodeError;
use crate::machine::{AppliedState, Snapshot, SnapshotData, StateMachine};
use crate::raft_types::{LogId, TypeConfig, Vote};
use crate::rows::{APPLIED, RowStage, RowStore};
use crate::runtime::enter;

pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// A snapshot that is being received.
struct Receiving {
    transfer: u64,
    parts: u64,
    stage: Box<dyn RowStage>,
    /// What the snapshot contains, from its row that says so.
    applied: Option<AppliedState>,
}

/// The snapshots of other nodes.
#[derive(Default)]
struct Incoming {
    /// The one that is being received. A new one replaces it.
    receiving: Option<Receiving>,
    /// The last one that was installed, and the response to it.
    installed: Option<(u64, Bytes)>,
}

/// Responds to the requests of other nodes.
pub(crate) struct NodeService {
    raft: Raft,
    rows: Arc<dyn RowStore>,
    pool: Arc<dyn BlockingPool>,
    runtime: Arc<dyn Runtime>,
    /// Locked while a snapshot is installed, because the next one would use the same file.
    incoming: Mutex<Incoming>,
}

impl NodeService {
    pub(crate) fn new(
        raft: Raft,
        rows: Arc<dyn RowStore>,
        pool: Arc<dyn BlockingPool>,
        runtime: Arc<dyn Runtime>,
    ) -> Arc<Self> {
        Arc::new(Self {
            raft,
            rows,
            pool,
            runtime,
            incoming: Mutex::default(),
        })
    }

    async fn respond(&self, request: Bytes) -> Result<Bytes, String> {
        let request = NodeRequest::decode(request).map_err(|error| error.to_string())?;
        match request {
            NodeRequest::Append(request) => {
                let response = self.raft.append_entries(request).await;
                response
                    .map(|response| wire::append_response(&response))
                    .map_err(|error| error.to_string())
            }
            NodeRequest::Vote(request) => {
                let response = self.raft.vote(request).await;
                response
                    .map(|response| wire::vote_response(&response))
                    .map_err(|error| error.to_string())
            }
            NodeRequest::PreVote(request) => {
                let response = self.raft.pre_vote(request).await;
                response
                    .map(|response| wire::vote_response(&response))
                    .map_err(|error| error.to_string())
            }
            NodeRequest::Transfer(request) => {
                let handled = self.raft.handle_transfer_leader(request).await;
                handled
                    .map(|_| wire::done())
                    .map_err(|error| error.to_string())
            }
            NodeRequest::SnapshotBegin { transfer } => self.begin(transfer).await,
            NodeRequest::SnapshotRows {
                transfer,
                part,
                rows,
            } => self.receive(transfer, part, rows).await,
            NodeRequest::SnapshotEnd {
                transfer,
                vote,
                parts,
                last,
            } => self.install(transfer, vote, parts, last).await,
        }
    }

    async fn begin(&self, transfer: u64) -> Result<Bytes, String> {
        // While the disk is full, an installation waits. Further transfers must not pile up behind it.
        let Ok(mut incoming) = self.incoming.try_lock() else {
            return Err("another snapshot is being installed".to_owned());
        };
        // Its file is used again.
        incoming.receiving = None;
        let rows = Arc::clone(&self.rows);
        let stage = blocking::run(&self.pool, move || rows.stage()).await;
        incoming.receiving = Some(Receiving {
            transfer,
            parts: 0,
            stage: stage.map_err(|error| error.to_string())?,
            applied: None,
        });
        Ok(wire::done())
    }

    async fn receive(
        &self,
        transfer: u64,
        part: u64,
        rows: Vec<qo_broker::rows::Row>,
    ) -> Result<Bytes, String> {
        let slot = &mut self.incoming.lock().await.receiving;
        let expected = slot
            .as_ref()
            .is_some_and(|receiving| receiving.transfer == transfer && receiving.parts == part);
        let Some(mut receiving) = slot.take_if(|_| expected) else {
            return Err("this part of the snapshot does not follow the last one".to_owned());
        };
        if let Some(row) = rows.iter().find(|row| row.key == APPLIED) {
            let applied = AppliedState::decode(row.value.clone());
            receiving.applied = Some(applied.map_err(|error| error.to_string())?);
        }
        let added = blocking::run(&self.pool, move || {
            receiving.stage.add(rows)?;
            receiving.parts += 1;
            Ok(receiving)
        });
        *slot = Some(added.await.map_err(|error| error.to_string())?);
        Ok(wire::done())
    }

    async fn install(
        &self,
        transfer: u64,
        vote: Vote,
        parts: u64,
        last: Option<LogId>,
    ) -> Result<Bytes, String> {
        let mut incoming = self.incoming.lock().await;
        if let Some((installed, response)) = &incoming.installed
            && *installed == transfer
        {
            // The first response was late or lost.
            return Ok(response.clone());
        }
        let received = incoming
            .receiving
            .take_if(|receiving| receiving.transfer == transfer && receiving.parts == parts);
        let Some(Receiving {
            stage,
            applied: Some(applied),
            ..
        }) = received
        else {
            return Err("the snapshot is incomplete".to_owned());
        };
        if applied.log_id != last {
            return Err("the snapshot does not contain what it says".to_owned());
        }
        let snapshot = Snapshot {
            meta: SnapshotMetaOf::<TypeConfig> {
                last_log_id: applied.log_id,
                last_membership: applied.members,
            },
            snapshot: SnapshotData::Received(stage),
        };
        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
        let response: SnapshotResponse<TypeConfig> =
            installed.map_err(|error| error.to_string())?;
        let response = wire::snapshot_response(&response);
        incoming.installed = Some((transfer, response.clone()));
        Ok(response)
    }
}

impl Service for Arc<NodeService> {
    fn handle(&self, _from: u64, request: Bytes) -> BoxFuture<Bytes> {
        let service = Self::clone(self);
        let runtime = Arc::clone(&self.runtime);
        Box::pin(enter(&runtime, async move {
            let response = service.respond(request).await;
            response.unwrap_or_else(|reason| wire::failed(&DecodeError(reason).0))
        }))
    }
}
