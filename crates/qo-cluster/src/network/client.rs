//! openraft's network on top of a transport.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use qo_store::runtime::Runtime;

use super::wire;
use super::{Transport, TransportError};
use crate::blocking::{self, BlockingPool};
use crate::codec::DecodeError;
use crate::config::Member;
use crate::log_bound::Transfers;
use crate::machine::{Snapshot, SnapshotData};
use crate::raft_types::{TypeConfig, Vote};

/// How long one part of a snapshot may take.
const PART_LIMIT: Duration = Duration::from_secs(30);
/// How often the other node is asked whether it has installed a snapshot. It syncs all rows for that.
const INSTALL_QUESTIONS: usize = 10;
/// The least time for a message with entries: the other node syncs them before it responds.
const APPEND_LIMIT: Duration = Duration::from_secs(5);

/// Makes the connections to other nodes.
pub(crate) struct NetworkFactory {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) pool: Arc<dyn BlockingPool>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) transfers: Transfers,
}

impl RaftNetworkFactory<TypeConfig> for NetworkFactory {
    type Network = NodeClient;

    async fn new_client(&mut self, target: u64, member: &Member) -> NodeClient {
        NodeClient {
            target: Member {
                node: target,
                ..member.clone()
            },
            transport: Arc::clone(&self.transport),
            pool: Arc::clone(&self.pool),
            runtime: Arc::clone(&self.runtime),
            transfers: self.transfers.clone(),
        }
    }
}

/// The connection to another node.
pub(crate) struct NodeClient {
    target: Member,
    transport: Arc<dyn Transport>,
    pool: Arc<dyn BlockingPool>,
    runtime: Arc<dyn Runtime>,
    transfers: Transfers,
}

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

fn failed(error: &TransportError) -> RPCError<TypeConfig> {
    match error {
        TransportError::TimedOut { .. } => RPCError::Network(NetworkError::new(error)),
        _ => RPCError::Unreachable(Unreachable::new(error)),
    }
}

fn unreadable(error: &DecodeError) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl NodeClient {
    async fn call(&self, request: Bytes, limit: Duration) -> RpcResult<Bytes> {
        let response = self.transport.call(&self.target, request, limit).await;
        response.map_err(|error| failed(&error))
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> RpcResult<SnapshotResponse<TypeConfig>> {
        let SnapshotData::View(mut view) = snapshot.snapshot else {
            let error = DecodeError("a received snapshot cannot be sent".to_owned());
            return Err(unreadable(&error));
        };
        let last = snapshot.meta.last_log_id.map_or(0, |last| last.index);
        let sending = self.transfers.begin(self.target.node, last);
        let transfer = self.runtime.random();
        let begun = self.call(wire::snapshot_begin(transfer), PART_LIMIT);
        wire::open_response(begun.await?).map_err(|error| unreadable(&error))?;
        let mut parts = 0;
        loop {
            let read = blocking::run(&self.pool, move || {
                let page = view.next_page()?;
                Ok((view, page))
            });
            let page = match read.await {
                Ok((same, page)) => {
                    view = same;
                    page
                }
                Err(error) => return Err(RPCError::Unreachable(Unreachable::new(&error))),
            };
            if page.is_empty() {
                break;
            }
            let sent = self.call(wire::snapshot_rows(transfer, parts, &page), PART_LIMIT);
            wire::open_response(sent.await?).map_err(|error| unreadable(&error))?;
            parts += 1;
        }
        let end = wire::snapshot_end(transfer, vote, parts, snapshot.meta.last_log_id);
        let mut questions = 1;
        let ended = loop {
            match self.call(end.clone(), PART_LIMIT).await {
                Err(RPCError::Network(_)) if questions < INSTALL_QUESTIONS => questions += 1,
                ended => break ended?,
            }
        };
        let response = wire::read_snapshot_response(ended);
        let response = response.map_err(|error| unreadable(&error))?;
        sending.finish();
        Ok(response)
    }
}

impl RaftNetworkV2<TypeConfig> for NodeClient {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let limit = if request.entries.is_empty() {
            option.hard_ttl()
        } else {
            option.hard_ttl().max(APPEND_LIMIT)
        };
        let response = self.call(wire::append_request(&request), limit).await?;
        wire::read_append_response(response).map_err(|error| unreadable(&error))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let bytes = wire::vote_request(&request, false);
        let response = self.call(bytes, option.hard_ttl()).await?;
        wire::read_vote_response(response).map_err(|error| unreadable(&error))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let bytes = wire::vote_request(&request, true);
        let response = self.call(bytes, option.hard_ttl()).await?;
        wire::read_vote_response(response).map_err(|error| unreadable(&error))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot) => sent.map_err(|error| match error {
                RPCError::Network(error) => StreamingError::Network(error),
                RPCError::Unreachable(error) => StreamingError::Unreachable(error),
                other => StreamingError::Unreachable(Unreachable::new(&other)),
            }),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let bytes = wire::transfer_request(&request);
        let response = self.call(bytes, option.hard_ttl()).await?;
        wire::open_response(response).map_err(|error| unreadable(&error))?;
        Ok(Ok(()))
    }
}
