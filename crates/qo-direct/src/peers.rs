//! Which workers are there, so that they share the work instead of fighting over it.
//!
//! One LIST of the workers' records shows who is alive by when each was written; what a worker takes is read once per worker.
//! It is asked only while there is work, at most every ten seconds. Being wrong costs lost races, never a lost task.

use std::collections::BTreeMap;
use std::time::Duration;

use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_core::{Shard, TaskId, WorkerId};
use qo_engine::api::WorkerInfo;

use super::DirectEngine;
use super::ready_cache::ReadyListName;

/// How long what is known of the others is good enough.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// How many workers are looked at.
const PEERS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Peers {
    known: tokio::sync::Mutex<Known>,
}

#[derive(Default)]
struct Known {
    refreshed_at: Option<Duration>,
    alive: Vec<WorkerId>,
    records: BTreeMap<WorkerId, WorkerInfo>,
}

/// A worker's place among the live ones of a lane and how many those are, for each shard that it takes from.
pub(super) struct Ranks {
    places: Vec<Option<(u128, u128)>>,
}

impl Ranks {
    /// Whether the worker is the one that is expected to take a task.
    pub(super) fn owns(&self, id: TaskId) -> bool {
        let place = self.places.get(usize::from(id.shard().index())).copied();
        place
            .flatten()
            .is_some_and(|(rank, count)| id.as_uuid().as_u128() % count == rank)
    }
}

impl DirectEngine {
    /// The worker's places among the live ones of a lane; nothing, if it is not one of them.
    pub(super) async fn ranks(&self, name: &ReadyListName, worker: &WorkerId) -> Option<Ranks> {
        let mut known = self.shared.peers.known.lock().await;
        let now = self.runtime().monotonic();
        if known
            .refreshed_at
            .is_none_or(|at| now >= at + REFRESH_INTERVAL)
        {
            known.refreshed_at = Some(now);
            self.refresh(&mut known).await;
        }
        let records = known
            .alive
            .iter()
            .filter_map(|peer| known.records.get(peer));
        let serving: Vec<_> = records
            .filter(|record| record.serves(&name.queue, &name.task_type))
            .collect();
        if !serving.iter().any(|peer| peer.worker_id == *worker) {
            return None;
        }
        let places = Shard::all().map(|shard| {
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
        Some(Ranks {
            places: places.collect(),
        })
    }

    /// Whether a worker was among the live ones at the last look.
    pub(super) async fn is_known_peer(&self, worker: &WorkerId) -> bool {
        self.shared.peers.known.lock().await.alive.contains(worker)
    }

    /// Forgets when the others were last looked at: something about them has changed.
    pub(super) async fn look_at_peers_again(&self) {
        self.shared.peers.known.lock().await.refreshed_at = None;
    }

    async fn refresh(&self, known: &mut Known) {
        let page = match self.client().page(WORKERS_PREFIX, None, PEERS_MAX).await {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(%error, "the other workers are not known; going on with what was");
                return;
            }
        };
        let now = self.client().now();
        let stale_ms = self.config().worker_stale_ms;
        known.alive.clear();
        for entry in page.entries {
            let Ok(Key::Worker(worker)) = entry.key.parse::<Key>() else {
                continue;
            };
            if entry.last_modified.plus_millis(stale_ms) < now {
                continue;
            }
            if !known.records.contains_key(&worker)
                && let Ok(object) = self.client().get(&entry.key).await
                && let Ok(record) = serde_json::from_slice(&object.body)
            {
                known.records.insert(worker.clone(), record);
            }
            known.alive.push(worker);
        }
        let alive = &known.alive;
        known.records.retain(|worker, _| alive.contains(worker));
    }
}
