//! The queue of a cluster as this node offers it: the leader's engine, or the error that another node leads.

use std::fmt;
use std::sync::{Arc, Weak};

use qo_broker::BrokerEngine;
use qo_core::Timestamp;
use qo_engine::api::Duty;
use qo_engine::watch::Watcher;
use qo_engine::{ChangeCall, Engine, EngineError, ForwardingEngine, ReadCall};

use crate::leader::{Freshness, view};
use crate::node::NodeShared;

/// The queue of a cluster. Its operations fail with [`EngineError::NotLeader`] while another node leads. Clones share everything.
#[derive(Clone)]
pub struct ClusterEngine(pub(crate) Arc<NodeShared>);

impl fmt::Debug for ClusterEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEngine")
            .field("node", &self.0.config.node)
            .finish_non_exhaustive()
    }
}

impl ClusterEngine {
    /// Ends expired leases without waiting for the next interval.
    pub async fn maintain(&self) -> Result<(), EngineError> {
        self.leading()?.maintain().await
    }

    fn leading(&self) -> Result<BrokerEngine, EngineError> {
        self.0.serving().ok_or(EngineError::NotLeader)
    }
}

impl ForwardingEngine for ClusterEngine {
    fn now(&self) -> Timestamp {
        match self.0.serving() {
            Some(engine) => engine.now(),
            None => self.0.runtime.now(),
        }
    }

    /// Runs a read on the leader's engine. If the disk is full, what is applied is read instead, because the engine would wait for changes that
    /// are not written. What is applied is everything that was acknowledged.
    async fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl ReadCall<'a, T>,
    ) -> Result<T, EngineError> {
        let engine = self.leading()?;
        let (full, runtime) = (self.0.log.full(), self.0.runtime.as_ref());
        if !full.is_full() {
            let read = full.guard(runtime, false, call(Arc::new(engine))).await;
            if read.is_ok() || !full.is_full() {
                return read;
            }
        }
        let objects = self.0.serving_objects().ok_or(EngineError::NotLeader)?;
        let read = async {
            objects.confirm().await?;
            let applied = view(&self.0, Freshness::Applied).await?;
            call(Arc::new(applied)).await
        };
        full.guard(runtime, false, read).await
    }

    /// Runs a change on the leader's engine.
    async fn change<'a, T: Send + 'a>(
        &'a self,
        call: impl ChangeCall<'a, T>,
    ) -> Result<T, EngineError> {
        let call = call(Arc::new(self.leading()?));
        let full = self.0.log.full();
        full.guard(self.0.runtime.as_ref(), true, call).await
    }

    /// The leader does all work of the queue.
    fn duty(&self) -> Duty {
        self.leading().map_or(Duty::None, |engine| engine.duty())
    }

    /// A watcher is notified of the changes that this node makes while it leads.
    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.0.watch(watcher);
        true
    }

    /// The queue belongs to the cluster, so this only ends what the caller has of it. Stop the node with
    /// [`ClusterNode::shutdown`](crate::ClusterNode::shutdown).
    async fn close(&self) {}
}
