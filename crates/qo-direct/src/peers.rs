//! The live workers, so that they share the work instead of racing for the same tasks.
//!
//! A LIST of the workers' records shows which workers are alive, by the time when each record was written. The record itself, which
//! has the queues and types of a worker, is read once per worker. The list is refreshed only while there is work, at most every ten
//! seconds. A wrong list costs lost races, never a lost task.

use std::collections::BTreeMap;
use std::time::Duration;

use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_core::{Shard, TaskId, WorkerId};
use qo_engine::api::WorkerInfo;

use super::DirectEngine;
use super::ready_cache::ReadyListName;

/// How long the list of live workers is used before it is refreshed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// How many workers are listed.
const PEERS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Peers {
    cache: tokio::sync::Mutex<PeerCache>,
}

#[derive(Default)]
struct PeerCache {
    refreshed_at: Option<Duration>,
    alive: Vec<WorkerId>,
    records: BTreeMap<WorkerId, WorkerInfo>,
}

/// The rank of a worker among the live workers of a queue and type, and their number, for each shard that it claims from.
pub(super) struct ShardRanks {
    by_shard: Vec<Option<(u128, u128)>>,
}

impl ShardRanks {
    /// Whether a task is assigned to the worker.
    pub(super) fn owns(&self, id: TaskId) -> bool {
        let rank = self.by_shard.get(usize::from(id.shard().index())).copied();
        rank.flatten()
            .is_some_and(|(rank, count)| id.as_uuid().as_u128() % count == rank)
    }
}

impl DirectEngine {
    /// The worker's ranks among the live workers of a queue and type; `None` if it is not one of them.
    pub(super) async fn ranks(
        &self,
        name: &ReadyListName,
        worker: &WorkerId,
    ) -> Option<ShardRanks> {
        let mut cache = self.shared.peers.cache.lock().await;
        let now = self.runtime().monotonic();
        if cache
            .refreshed_at
            .is_none_or(|at| now >= at + REFRESH_INTERVAL)
        {
            cache.refreshed_at = Some(now);
            self.refresh_peers(&mut cache).await;
        }
        let records = cache
            .alive
            .iter()
            .filter_map(|peer| cache.records.get(peer));
        let serving: Vec<_> = records
            .filter(|record| record.serves(&name.queue, &name.task_type))
            .collect();
        if !serving.iter().any(|peer| peer.worker_id == *worker) {
            return None;
        }
        let by_shard = Shard::all().map(|shard| {
            let serving = serving.iter().filter(|peer| peer.takes_from(shard));
            let mut count = 0;
            let mut rank = None;
            for peer in serving {
                if peer.worker_id == *worker {
                    rank = Some(count);
                }
                count += 1;
            }
            rank.map(|rank| (rank, count))
        });
        Some(ShardRanks {
            by_shard: by_shard.collect(),
        })
    }

    /// Whether a worker was alive at the last refresh.
    pub(super) async fn is_known_peer(&self, worker: &WorkerId) -> bool {
        self.shared.peers.cache.lock().await.alive.contains(worker)
    }

    /// Forces a refresh at the next use, because the workers have changed.
    pub(super) async fn invalidate_peers(&self) {
        self.shared.peers.cache.lock().await.refreshed_at = None;
    }

    async fn refresh_peers(&self, cache: &mut PeerCache) {
        let page = match self.client().page(WORKERS_PREFIX, None, PEERS_MAX).await {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(%error, "could not list the workers; using the previous list");
                return;
            }
        };
        let now = self.client().now();
        let stale_ms = self.config().worker_stale_ms;
        cache.alive.clear();
        for entry in page.entries {
            let Ok(Key::Worker(worker)) = entry.key.parse::<Key>() else {
                continue;
            };
            if entry.last_modified.plus_millis(stale_ms) < now {
                continue;
            }
            if !cache.records.contains_key(&worker)
                && let Ok(object) = self.client().get(&entry.key).await
                && let Ok(record) = serde_json::from_slice(&object.body)
            {
                cache.records.insert(worker.clone(), record);
            }
            cache.alive.push(worker);
        }
        let alive = &cache.alive;
        cache.records.retain(|worker, _| alive.contains(worker));
    }
}
