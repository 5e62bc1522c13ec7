//! Serves the queue while this node leads.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::{Instant, ServerState};
use qo_broker::BrokerEngine;
use qo_broker::rows::RowsConfig;
use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use tokio::sync::watch;

use super::clock::{CONFIRM_INTERVAL, LeaderClock};
use super::database::{ClusterRows, RowReader};
use super::objects::ClusterObjects;
use super::proposer::Proposer;
use super::sweep::sweep;
use super::writer::{GroupWriter, LeaderCheck};
use crate::config::PAYLOAD_MAX_BYTES;
use crate::node::NodeShared;
use crate::proposal::Proposal;

/// How long to wait before the next attempt to serve.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves whenever this node leads, until it is stopped.
pub(crate) async fn lead(node: Arc<NodeShared>) {
    loop {
        tokio::select! {
            biased;
            () = node.stopped() => return,
            () = wait_until_leading(&node) => {}
        }
        let (sender, lost) = watch::channel(false);
        let watching = watch_lead(&node, &sender);
        let serving = serve(&node, lost);
        tokio::select! {
            biased;
            () = node.stopped() => {
                sender.send_replace(true);
                node.withdraw();
                return;
            }
            served = serving => if let Err(error) = served {
                tracing::warn!(node = node.config.node, %error, "this node cannot serve at the moment");
            },
            () = watching => {}
        }
        sender.send_replace(true);
        node.withdraw();
        node.runtime.sleep(PAUSE).await;
    }
}

async fn wait_until_leading(node: &NodeShared) {
    while !leads(node) {
        node.runtime.sleep(PAUSE).await;
    }
}

/// Whether this node leads, and a majority has responded lately. Another group than group 0 is served only by the leader of group 0, so that
/// clients need to know one leader.
fn leads(node: &NodeShared) -> bool {
    if let Some(guide) = &node.guide
        && guide.raft.metrics().borrow_watched().state != ServerState::Leader
    {
        return false;
    }
    let metrics = node.raft.metrics();
    let metrics = metrics.borrow_watched();
    if metrics.state != ServerState::Leader || metrics.current_leader != Some(node.config.node) {
        return false;
    }
    let silence_max = node.config.election.1 * 2;
    let is_alone = metrics.membership_config.voter_ids().count() == 1;
    let acked = metrics.last_quorum_acked.as_ref();
    is_alone || acked.is_some_and(|acked| acked.elapsed() < silence_max)
}

/// Resolves when this node no longer leads.
async fn watch_lead(node: &NodeShared, lost: &watch::Sender<bool>) {
    while crate::runtime::enter(&node.runtime, async { leads(node) }).await {
        node.runtime.sleep(node.config.heartbeat).await;
    }
    lost.send_replace(true);
}

/// Takes over and serves. Returns when the engine has ended.
async fn serve(node: &Arc<NodeShared>, lost: watch::Receiver<bool>) -> Result<(), EngineError> {
    let runtime = &node.runtime;
    let elected = LeaderClock::start(runtime, &node.applied.borrow());
    // The barrier is not of any epoch.
    let taking = Proposer::start(
        node.raft.clone(),
        runtime,
        node.applied.clone(),
        lost.clone(),
        0,
    );
    let began = runtime.monotonic();
    let barrier = taking.propose(Proposal::barrier(elected.now())).await?;
    // Everything that earlier leaders wrote is applied now, with their times.
    let clock = elected.continue_from(&node.applied.borrow());
    let proposer = Proposer::start(
        node.raft.clone(),
        runtime,
        node.applied.clone(),
        lost,
        barrier.index,
    );
    let now = clock.clone();
    let rows = ClusterRows {
        reader: RowReader {
            rows: Arc::clone(&node.rows),
            pool: Arc::clone(&node.pool),
        },
        proposer: proposer.clone(),
        now: Arc::new(move || now.now()),
    };
    let objects = ClusterObjects::new(rows.clone(), Arc::clone(runtime));
    let store_clock = clock.store_clock(node.config.takeover_grace);
    let mut client_config = ClientConfig::default();
    client_config.object_bytes_max = PAYLOAD_MAX_BYTES;
    let client = StoreClient::new(
        Arc::new(objects.clone()),
        Arc::clone(&store_clock),
        Arc::clone(runtime),
        client_config,
    );
    let mut broker = node.config.broker.clone();
    broker.payload_max_bytes = broker.payload_max_bytes.min(PAYLOAD_MAX_BYTES);
    let writer = GroupWriter {
        proposer: proposer.clone(),
        in_flight_max: node.config.in_flight_max,
        number: 0,
    };
    let engine = BrokerEngine::rows(
        Arc::new(rows.clone()),
        Box::new(writer),
        Arc::new(LeaderCheck(proposer)),
        began,
        client,
        Arc::clone(runtime),
        RowsConfig::new(broker, node.config.retention, node.config.cleanup_interval),
    )
    .await?;
    tracing::info!(
        node = node.config.node,
        epoch = barrier.index,
        "this node serves the queue"
    );
    // Before this leader writes objects of its own.
    objects.remove_unfinished().await?;
    clock.confirm(&node.objects_clock);
    node.publish(&engine, &objects);
    let upkeep = async {
        runtime.sleep(node.config.takeover_grace).await;
        let mut swept_at = runtime.monotonic();
        loop {
            clock.confirm(&store_clock);
            clock.confirm(&node.objects_clock);
            if runtime.monotonic().saturating_sub(swept_at) >= node.config.sweep_interval {
                sweep(&rows).await?;
                swept_at = runtime.monotonic();
            }
            let pause = CONFIRM_INTERVAL.min(node.config.sweep_interval);
            runtime.sleep(pause).await;
        }
    };
    tokio::select! {
        biased;
        ended = engine.ended() => Err(ended),
        failed = upkeep => failed,
        () = objects.in_doubt() => Err(EngineError::NotLeader),
    }
}
