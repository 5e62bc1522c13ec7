//! The network between nodes: messages are delayed, lost, repeated, and cut off in one direction or both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use qo_cluster::{Member, Service, Transport, TransportError};
use qo_store::runtime::BoxFuture;
use tokio::sync::oneshot;

use super::Mutation;
use crate::random::Random;
use crate::sched::{HARNESS, ProcessId, Scheduler, lock};

/// The first byte of a message with entries, and of those that ask for a vote.
const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
/// Of one that names its group, and the bytes before the message itself.
const GROUPED: u8 = 8;
const GROUPED_BYTES: usize = 9;
/// The bytes of a vote in a message: term, node, and whether it is committed.
const VOTE_BYTES: usize = 17;
/// A response that everything is fine.
const SUCCESS: &[u8] = &[0, 0];

/// A message without the name of its group.
fn inner(message: &[u8]) -> &[u8] {
    match message.first() {
        Some(&GROUPED) => message.get(GROUPED_BYTES..).unwrap_or_default(),
        _ => message,
    }
}

/// The network. Clones share everything.
#[derive(Clone)]
pub(super) struct SimNetwork {
    scheduler: Scheduler,
    inner: Arc<Mutex<Inner>>,
    mutation: Option<Mutation>,
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
    pub(super) fn new(
        scheduler: &Scheduler,
        dice: Random,
        loss: f64,
        latency_ms: u64,
        mutation: Option<Mutation>,
    ) -> Self {
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
            mutation,
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
        if self.mutation == Some(Mutation::AcknowledgedUnseen)
            && inner(&request).first() == Some(&APPEND)
            && request.len() > 200
        {
            return Some(Bytes::from_static(SUCCESS));
        }
        let request = self.misdirected(request);
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
        let asked = request.clone();
        let response = self.deliver(from, to, request)?.await.ok()?;
        let (arrives, latency) = self.fate(to, from);
        self.scheduler.sleep(latency).await;
        if !arrives {
            return None;
        }
        Some(self.mutated(&asked, response))
    }

    /// Names the next group in a message, if the planted bug says so.
    fn misdirected(&self, request: Bytes) -> Bytes {
        if self.mutation != Some(Mutation::GroupsMixedUp)
            || request.first() != Some(&GROUPED)
            || inner(&request).first() != Some(&APPEND)
            || !lock(&self.inner).dice.chance(0.05)
        {
            return request;
        }
        let mut other = request.to_vec();
        // Both numbers are below 256: the groups, and the group.
        let (groups, group) = (other[4], other[8]);
        other[8] = (group + 1) % groups;
        Bytes::from(other)
    }

    /// A vote that was refused is given if the planted bug says so.
    fn mutated(&self, request: &Bytes, response: Bytes) -> Bytes {
        let request = inner(request);
        let is_vote = matches!(request.first(), Some(&(VOTE | PRE_VOTE)));
        let (Some(wanted), Some(held)) =
            (request.get(1..=VOTE_BYTES), response.get(1..=VOTE_BYTES))
        else {
            return response;
        };
        let term = |vote: &[u8]| vote[..8].to_vec();
        let gives = match self.mutation {
            Some(Mutation::VoteForgotten) => term(wanted) == term(held),
            Some(Mutation::VoteForShorterLog) => term(wanted) >= term(held),
            _ => false,
        };
        if !is_vote || !gives || response.first() != Some(&0) {
            return response;
        }
        let mut given = vec![0];
        given.extend_from_slice(wanted);
        // Granted, and no entry is known.
        given.extend([1, 0]);
        Bytes::from(given)
    }
}

struct SimTransport {
    network: SimNetwork,
    from: u64,
}

impl Transport for SimTransport {
    fn call(
        &self,
        target: &Member,
        request: Bytes,
        limit: Duration,
    ) -> BoxFuture<Result<Bytes, TransportError>> {
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
