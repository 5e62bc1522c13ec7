//! Stale reads: from the rows of this node, without the engine of a leader. On a follower they may be old, so callers must ask for them. A leader
//! whose disk is full also reads like this, because the state in its memory contains changes that are not written.
//!
//! The live tasks of the queue are loaded from this node's rows into a read-only engine, as a leader loads them. The engine is reloaded when it is
//! old, which takes at most a tenth of the time, and dropped when nobody has used it for a while. A node without stale reads pays nothing.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use qo_broker::BrokerEngine;
use qo_broker::rows::{RowGroup, RowWriter, RowsConfig, WriterCheck};
use qo_core::Timestamp;
use qo_engine::api::Duty;
use qo_engine::watch::Watcher;
use qo_engine::{ChangeCall, EngineError, ForwardingEngine, ReadCall};
use qo_store::runtime::BoxFuture;
use tokio::sync::Mutex;

use super::clock::LeaderClock;
use super::database::{ClusterRows, RowReader};
use super::objects::client;
use super::proposer::Proposer;
use crate::node::{ClusterNode, NodeShared};

/// A view is loaded again when it is older than this, and than so many times what loading it took.
const AGE_MAX: Duration = Duration::from_secs(1);
const LOAD_SHARE: u32 = 10;
/// A view that nobody used for so long is dropped.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// The time of a view ends no lease: only a leader does.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// The queue as this node has it. Changes fail with [`EngineError::NotLeader`]. Clones share everything.
#[derive(Clone)]
pub struct StaleEngine(Arc<NodeShared>);

/// The live tasks, loaded from the rows of this node.
pub(crate) struct View {
    engine: BrokerEngine,
    /// What was applied before it was loaded.
    index: Option<u64>,
    loaded_at: Duration,
    used_at: Duration,
    age_max: Duration,
}

/// Where a node keeps its view.
pub(crate) type ViewSlot = Arc<Mutex<Option<View>>>;

/// How new a view must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It may be old.
    Any,
    /// It contains everything that is applied.
    Applied,
}

impl fmt::Debug for StaleEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaleEngine")
            .field("node", &self.0.config.node)
            .finish_non_exhaustive()
    }
}

impl ClusterNode {
    /// The queue as this node has it, which may be old. Every node has it, also one that is cut off.
    pub fn stale_engine(&self) -> StaleEngine {
        StaleEngine(Arc::clone(&self.shared))
    }
}

/// An engine that reads the rows of this node.
pub(crate) async fn view(
    node: &Arc<NodeShared>,
    freshness: Freshness,
) -> Result<BrokerEngine, EngineError> {
    let runtime = &node.runtime;
    let mut slot = node.view.lock().await;
    let now = runtime.monotonic();
    let index = node.applied.borrow().index;
    if let Some(view) = slot.as_mut()
        && (view.index == index
            || freshness == Freshness::Any && now.saturating_sub(view.loaded_at) < view.age_max)
    {
        view.used_at = now;
        return Ok(view.engine.clone());
    }
    let engine = load(node).await?;
    let loaded_at = runtime.monotonic();
    let took = loaded_at.saturating_sub(now);
    let is_first = slot.is_none();
    *slot = Some(View {
        engine: engine.clone(),
        index,
        loaded_at,
        used_at: loaded_at,
        age_max: AGE_MAX.max(took * LOAD_SHARE),
    });
    drop(slot);
    if is_first {
        let dropping = drop_when_idle(Arc::downgrade(&node.view), Arc::clone(node));
        runtime.spawn(Box::pin(dropping));
    }
    Ok(engine)
}

async fn load(node: &Arc<NodeShared>) -> Result<BrokerEngine, EngineError> {
    let runtime = &node.runtime;
    let clock = LeaderClock::start(runtime, &node.applied.borrow());
    let now = clock.clone();
    let reader = RowReader {
        rows: Arc::clone(&node.rows),
        pool: Arc::clone(&node.pool),
    };
    // Nothing is proposed: this epoch never exists.
    let (_, lost) = tokio::sync::watch::channel(true);
    let applied = node.applied.clone();
    let proposer = Proposer::start(node.raft.clone(), runtime, applied, lost, u64::MAX);
    let rows = ClusterRows {
        reader,
        proposer,
        now: Arc::new(move || now.now()),
    };
    let objects = client(node, clock.store_clock(NEVER), false);
    BrokerEngine::rows(
        Arc::new(rows),
        Box::new(NoWriter),
        Arc::new(NoCheck),
        runtime.monotonic(),
        objects,
        Arc::clone(runtime),
        RowsConfig::new(node.config.broker.clone(), node.config.retention, NEVER),
    )
    .await
}

/// Drops a view that nobody uses.
async fn drop_when_idle(view: Weak<Mutex<Option<View>>>, node: Arc<NodeShared>) {
    loop {
        tokio::select! {
            biased;
            () = node.stopped() => return,
            () = node.runtime.sleep(IDLE_MAX) => {}
        }
        let Some(slot) = view.upgrade() else {
            return;
        };
        let mut slot = slot.lock().await;
        let now = node.runtime.monotonic();
        let is_idle = |view: &View| now.saturating_sub(view.used_at) >= IDLE_MAX;
        if slot.as_ref().is_none_or(is_idle) {
            *slot = None;
            return;
        }
    }
}

/// Refuses to write.
struct NoWriter;

#[async_trait]
impl RowWriter for NoWriter {
    fn write(&mut self, _group: RowGroup) -> BoxFuture<Result<Option<NonZeroU64>, EngineError>> {
        Box::pin(std::future::ready(Err(EngineError::NotLeader)))
    }

    fn drained(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn in_flight_max(&self) -> usize {
        1
    }

    fn names_commands(&self) -> bool {
        false
    }

    fn ended(&self) -> BoxFuture<EngineError> {
        Box::pin(std::future::pending())
    }

    async fn close(&mut self) {}
}

/// Asks nobody: these reads may be old.
struct NoCheck;

#[async_trait]
impl WriterCheck for NoCheck {
    async fn check(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

impl ForwardingEngine for StaleEngine {
    fn now(&self) -> Timestamp {
        self.0.runtime.now()
    }

    async fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl ReadCall<'a, T>,
    ) -> Result<T, EngineError> {
        let engine = view(&self.0, Freshness::Any).await?;
        call(Arc::new(engine)).await
    }

    async fn change<'a, T: Send + 'a>(
        &'a self,
        _call: impl ChangeCall<'a, T>,
    ) -> Result<T, EngineError> {
        Err(EngineError::NotLeader)
    }

    /// What is due in an old view says nothing about what a claim would return.
    fn forwards_due(&self) -> bool {
        false
    }

    fn duty(&self) -> Duty {
        Duty::None
    }

    /// There are no notifications: another node makes the changes.
    fn watch(&self, _watcher: Weak<dyn Watcher>) -> bool {
        false
    }

    async fn close(&self) {}
}
