//! The network between nodes: messages are delayed, lost, repeated, and cut off in one direction or both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use qo_cluster::{Member, PendingResponse, Service, Transport, TransportError};
use tokio::sync::oneshot;

use crate::random::Random;
use crate::sched::{HARNESS, ProcessId, Scheduler, lock};

/// The network. Clones share everything.
#[derive(Clone)]
pub(super) struct SimNetwork {
    scheduler: Scheduler,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    nodes: BTreeMap<u64, (ProcessId, Arc<dyn Service>)>,
    cuts: BTreeSet<(u64, u64)>,
    loss: f64,
    repeats: f64,
    latency_ms: u64,
    dice: Random,
}

impl SimNetwork {
    pub(super) fn new(scheduler: &Scheduler, dice: Random, loss: f64, latency_ms: u64) -> Self {
        Self {
            scheduler: scheduler.clone(),
            inner: Arc::new(Mutex::new(Inner {
                nodes: BTreeMap::new(),
                cuts: BTreeSet::new(),
                loss,
                repeats: loss / 2.0,
                latency_ms,
                dice,
            })),
        }
    }

    pub(super) fn join(&self, node: u64, process: ProcessId, service: Arc<dyn Service>) {
        lock(&self.inner).nodes.insert(node, (process, service));
    }

    pub(super) fn leave(&self, node: u64) {
        lock(&self.inner).nodes.remove(&node);
    }

    /// Drops all messages from one node to another.
    pub(super) fn cut(&self, from: u64, to: u64) {
        lock(&self.inner).cuts.insert((from, to));
    }

    pub(super) fn mend(&self, from: u64, to: u64) {
        lock(&self.inner).cuts.remove(&(from, to));
    }

    /// Ends all faults.
    pub(super) fn calm_down(&self) {
        let mut inner = lock(&self.inner);
        inner.cuts.clear();
        inner.loss = 0.0;
        inner.repeats = 0.0;
    }

    pub(super) fn transport(&self, from: u64) -> Arc<dyn Transport> {
        Arc::new(SimTransport {
            network: self.clone(),
            from,
        })
    }

    /// Whether a message arrives, and after how long.
    fn fate(&self, from: u64, to: u64) -> (bool, Duration) {
        let mut inner = lock(&self.inner);
        let (loss, latency_ms) = (inner.loss, inner.latency_ms);
        let is_lost = inner.dice.chance(loss) || inner.cuts.contains(&(from, to));
        let micros = inner.dice.between(100, 1_000 * latency_ms);
        (!is_lost, Duration::from_micros(micros))
    }

    /// Lets a node handle a request in its own process.
    fn deliver(&self, from: u64, to: u64, request: Bytes) -> Option<oneshot::Receiver<Bytes>> {
        let (process, service) = lock(&self.inner).nodes.get(&to).cloned()?;
        let (reply, response) = oneshot::channel();
        self.scheduler.spawn(
            process,
            Box::pin(async move {
                let _ = reply.send(service.handle(from, request).await);
            }),
        );
        Some(response)
    }

    async fn call(&self, from: u64, to: u64, request: Bytes) -> Option<Bytes> {
        let (arrives, latency) = self.fate(from, to);
        self.scheduler.sleep(latency).await;
        if !arrives {
            return None;
        }
        let repeat = {
            let mut inner = lock(&self.inner);
            let repeats = inner.repeats;
            inner
                .dice
                .chance(repeats)
                .then(|| inner.dice.millis(1, 5_000))
        };
        if let Some(pause) = repeat {
            // A copy of the message arrives late.
            let (network, request) = (self.clone(), request.clone());
            self.scheduler.spawn(
                HARNESS,
                Box::pin(async move {
                    network.scheduler.sleep(pause).await;
                    drop(network.deliver(from, to, request));
                }),
            );
        }
        let response = self.deliver(from, to, request)?.await.ok()?;
        let (arrives, latency) = self.fate(to, from);
        self.scheduler.sleep(latency).await;
        if !arrives {
            return None;
        }
        Some(response)
    }
}

struct SimTransport {
    network: SimNetwork,
    from: u64,
}

impl Transport for SimTransport {
    fn call(&self, target: &Member, request: Bytes, limit: Duration) -> PendingResponse {
        let (network, from, to) = (self.network.clone(), self.from, target.node);
        Box::pin(async move {
            let until = network.scheduler.sleep(limit);
            tokio::pin!(until);
            tokio::select! {
                biased;
                response = network.call(from, to, request) => if let Some(response) = response {
                    return Ok(response);
                },
                () = &mut until => return Err(TransportError::TimedOut { node: to }),
            }
            until.await;
            Err(TransportError::TimedOut { node: to })
        })
    }
}
