//! The live workers, so that they share the work instead of racing for the same tasks.
//!
//! A LIST of the workers' records shows which workers are alive, by the time when each record was written. The record itself, which
//! has the queues and types of a worker, is read once per worker, several at a time. The list is refreshed only while there is work: at
//! most every ten seconds, and less often in a large fleet, where each refresh costs more and changes less. It is refreshed in the
//! background, and claims use the previous list meanwhile. A wrong list costs lost races, never a lost task.
//!
//! Work for the whole bucket, such as promoting scheduled tasks and checking leases, is shared out by the rank of a process's worker among
//! all live workers. Every such duty has a second worker that acts a little later, and all others act much later, so that it is done
//! even if the list is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_core::{Shard, TaskId, WorkerId};
use qo_engine::api::WorkerInfo;
use qo_store::client::PAGE_LIMIT_MAX;

use super::ready_cache::ReadyListName;
use super::{DirectEngine, lock};

/// How long the list of live workers is used before it is refreshed, at least and at most.
const REFRESH_MIN: Duration = Duration::from_secs(10);
const REFRESH_MAX: Duration = Duration::from_mins(1);
/// How much longer it is used for each worker in it.
const REFRESH_PER_PEER: Duration = Duration::from_millis(500);
/// The maximum number of pages of workers that are listed.
const PAGES_MAX: usize = 10;

#[derive(Default)]
pub(super) struct Peers {
    cache: Mutex<PeerCache>,
    /// Whether the list is being refreshed.
    refreshing: tokio::sync::Mutex<()>,
}

/// The position of a process among the live workers of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// There are no live workers, as far as it knows.
    Alone,
    /// There are, but it is none of them.
    Outside,
    /// It is one of them.
    Ranked(Rank),
}

#[derive(Default)]
struct PeerCache {
    refreshed_at: Option<Duration>,
    /// The workers that this process has registered.
    own: BTreeSet<WorkerId>,
    /// The records of the live workers, by name.
    alive: Arc<BTreeMap<WorkerId, Option<Arc<WorkerInfo>>>>,
}

/// The rank of a worker among the live workers of a queue and type, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) rank: u64,
    pub(super) count: u64,
}

impl Rank {
    /// Whether a task is assigned to the worker.
    pub(super) fn owns(self, id: TaskId) -> bool {
        id.as_uuid().as_u128() % u128::from(self.count.max(1)) == u128::from(self.rank)
    }

    /// Whether the worker is the first to take a task that its own worker leaves.
    pub(super) fn backs_up(self, id: TaskId) -> bool {
        let before = (self.rank + self.count.saturating_sub(1)) % self.count.max(1);
        let owner = Self {
            rank: before,
            ..self
        };
        owner.owns(id)
    }
}

/// The ranks of a worker for each shard that it claims from.
pub(super) struct ShardRanks {
    by_shard: Vec<Option<Rank>>,
}

impl ShardRanks {
    /// The rank, if it is the same for all shards.
    pub(super) fn common(&self) -> Option<Rank> {
        let first = self.by_shard.first().copied().flatten()?;
        let is_common = self.by_shard.iter().all(|rank| *rank == Some(first));
        is_common.then_some(first)
    }

    /// Whether a task is assigned to the worker.
    pub(super) fn owns(&self, id: TaskId) -> bool {
        self.of(id).is_some_and(|rank| rank.owns(id))
    }

    /// Whether the worker is the first to take a task that its own worker leaves.
    pub(super) fn backs_up(&self, id: TaskId) -> bool {
        self.of(id).is_some_and(|rank| rank.backs_up(id))
    }

    fn of(&self, id: TaskId) -> Option<Rank> {
        let rank = self.by_shard.get(usize::from(id.shard().index())).copied();
        rank.flatten()
    }
}

impl DirectEngine {
    /// The worker's ranks among the live workers of a queue and type, as far as they are known; `None` if it is not one of them. Refreshes
    /// the list in the background.
    pub(super) fn ranks(&self, name: &ReadyListName, worker: &WorkerId) -> Option<ShardRanks> {
        if self.is_peer_refresh_due() {
            let engine = self.clone();
            let refresh = async move { engine.refresh_peers_if_due().await };
            self.shared.runtime.spawn(Box::pin(refresh));
        }
        let alive = Arc::clone(&lock(&self.shared.peers.cache).alive);
        let serving: Vec<_> = alive
            .values()
            .flatten()
            .filter(|record| record.serves(&name.queue, &name.task_type))
            .collect();
        if !serving.iter().any(|peer| peer.worker_id == *worker) {
            return None;
        }
        let by_shard = Shard::all().map(|shard| {
            let serving = serving.iter().filter(|peer| peer.takes_from(shard));
            let (mut count, mut rank) = (0, None);
            for peer in serving {
                if peer.worker_id == *worker {
                    rank = Some(count);
                }
                count += 1;
            }
            rank.map(|rank| Rank { rank, count })
        });
        Some(ShardRanks {
            by_shard: by_shard.collect(),
        })
    }

    /// The position of this process among the live workers, by the first worker that it has registered.
    pub(super) fn standing(&self) -> Standing {
        let cache = lock(&self.shared.peers.cache);
        if cache.alive.is_empty() {
            return Standing::Alone;
        }
        let rank = cache.alive.keys().position(|peer| cache.own.contains(peer));
        match rank {
            Some(rank) => Standing::Ranked(Rank {
                rank: rank as u64,
                count: cache.alive.len() as u64,
            }),
            None => Standing::Outside,
        }
    }

    /// Whether this process does what two workers do for all: it has one of them, or there may be none.
    pub(super) fn is_among_first(&self) -> bool {
        !matches!(self.standing(), Standing::Ranked(Rank { rank: 2.., .. }))
    }

    /// Adds a worker of this process.
    pub(super) async fn add_own_worker(&self, worker: &WorkerId) {
        {
            let mut cache = lock(&self.shared.peers.cache);
            cache.own.insert(worker.clone());
            if cache.alive.contains_key(worker) {
                return;
            }
            // A new worker gets its share of the work immediately.
            cache.refreshed_at = None;
        }
        self.refresh_peers_if_due().await;
    }

    /// Forgets a worker that was removed.
    pub(super) fn forget_worker(&self, worker: &WorkerId) {
        let mut cache = lock(&self.shared.peers.cache);
        cache.own.remove(worker);
        cache.refreshed_at = None;
    }

    /// Refreshes the list at the next use, because a worker seems to be gone.
    pub(super) fn expect_new_peers(&self) {
        lock(&self.shared.peers.cache).refreshed_at = None;
    }

    fn is_peer_refresh_due(&self) -> bool {
        let now = self.runtime().monotonic();
        let cache = lock(&self.shared.peers.cache);
        let count = u32::try_from(cache.alive.len()).unwrap_or(u32::MAX);
        let interval = REFRESH_PER_PEER
            .saturating_mul(count)
            .clamp(REFRESH_MIN, REFRESH_MAX);
        cache.refreshed_at.is_none_or(|at| now >= at + interval)
    }

    /// Refreshes the list of live workers, if it is old and nobody else refreshes it.
    pub(super) async fn refresh_peers_if_due(&self) {
        let Ok(_refreshing) = self.shared.peers.refreshing.try_lock() else {
            return;
        };
        if !self.is_peer_refresh_due() {
            return;
        }
        // A failed refresh is not repeated at once either.
        let now = self.runtime().monotonic();
        lock(&self.shared.peers.cache).refreshed_at = Some(now);
        if let Some(alive) = self.read_peers().await {
            lock(&self.shared.peers.cache).alive = Arc::new(alive);
        }
    }

    async fn read_peers(&self) -> Option<BTreeMap<WorkerId, Option<Arc<WorkerInfo>>>> {
        let known = Arc::clone(&lock(&self.shared.peers.cache).alive);
        let stale_ms = self.config().worker_stale_ms;
        let mut alive = BTreeMap::new();
        let mut unread = Vec::new();
        let mut after = None;
        for _ in 0..PAGES_MAX {
            let page = match self
                .client()
                .page(WORKERS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
                .await
            {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%error, "could not list the workers; using the previous list");
                    return None;
                }
            };
            let now = self.client().now();
            for entry in page.entries {
                let Ok(Key::Worker(worker)) = entry.key.parse::<Key>() else {
                    continue;
                };
                if entry.last_modified.plus_millis(stale_ms) < now {
                    continue;
                }
                let record = known.get(&worker).cloned().flatten();
                if record.is_none() {
                    unread.push((worker.clone(), entry.key));
                }
                alive.insert(worker, record);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut reads = futures_util::stream::iter(unread)
            .map(|(worker, key)| async move { (worker, self.client().get(&key).await) })
            .buffer_unordered(self.config().concurrency);
        while let Some((worker, read)) = reads.next().await {
            let record = read.ok();
            let record = record.and_then(|object| serde_json::from_slice(&object.body).ok());
            alive.insert(worker, record.map(Arc::new));
        }
        Some(alive)
    }
}
