//! The live workers, so that they share the work instead of racing for the same tasks.
//!
//! One object, the [roster](super::roster), names them. A process reads it with a conditional GET while there is work: at most every ten
//! seconds, and less often in a large fleet, where each change matters less. It does so in the background, and claims use the
//! previous roster meanwhile. A wrong roster costs lost races, never a lost task.
//!
//! One worker keeps the roster for all. It lists the workers' records, which shows by the times when they were written which workers are
//! alive, reads the records that are new, and swaps the roster:
//!
//! | process | lists the workers when they were last listed |
//! | --- | --- |
//! | the first worker of the roster | a minute ago |
//! | the next ones | five seconds more for each rank, at most ten minutes ago: those before it are gone or have nothing to do |
//! | any other process | ten minutes ago |
//! | one whose worker is missing in the roster, or is there with other types | ten seconds ago, so that workers that start together write it once |
//! | one that did the work of another, which seems to be gone | half a minute ago |
//! | any, if there is no roster | a minute ago by itself |
//!
//! | step | a crash after it leaves |
//! | --- | --- |
//! | list the workers, read the new records | nothing |
//! | swap the roster, in the background | nothing; a swap that loses is not repeated, because the winner has listed, too |
//!
//! A worker that stops takes itself off the roster. While a process sees no worker but its own, it writes no roster.
//!
//! Work for the whole bucket, such as promoting scheduled tasks and checking leases, is shared out by the rank of a process's worker among
//! all live workers. Every such duty has a second worker that acts a little later, and all others act much later, so that it is done
//! even if the roster is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::WorkerId;
use qo_core::keys::{Key, ROSTER_KEY, WORKERS_PREFIX};
use qo_engine::api::WorkerInfo;
use qo_store::client::{PAGE_LIMIT_MAX, Tag};
use qo_store::runtime::RuntimeExt;
use qo_store::{StoreClient, StoreError};

use super::assignment::{Rank, ShardRanks};
use super::ready_cache::ReadyListName;
use super::roster::{Profile, Roster};
use super::{DirectEngine, lock};

/// How long the roster is used before it is read again, at least and at most.
const REFRESH_MIN: Duration = Duration::from_secs(10);
const REFRESH_MAX: Duration = Duration::from_secs(30);
/// How much longer it is used for each worker in it.
const REFRESH_PER_PEER: Duration = Duration::from_millis(500);
/// How old the last LIST of the workers is when a process lists them again.
const LIST_FIRST_MS: u64 = 60_000;
const LIST_PER_RANK_MS: u64 = 5_000;
const LIST_OTHERS_MS: u64 = 600_000;
const LIST_JOINING_MS: u64 = 10_000;
const LIST_SUSPECT_MS: u64 = 30_000;
const LIST_WITHOUT_ROSTER: Duration = Duration::from_mins(1);
/// The maximum number of pages of workers that are listed.
const PAGES_MAX: usize = 10;

#[derive(Default)]
pub(super) struct Peers {
    cache: Mutex<PeerCache>,
    /// Whether the roster is being refreshed.
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
    /// When this process last listed the workers.
    listed_at: Option<Duration>,
    /// Whether a worker of the roster seems to be gone.
    is_suspect: bool,
    /// The workers that this process has registered.
    own: BTreeMap<WorkerId, OwnWorker>,
    /// The roster as it was last read or written.
    stored: Option<(Arc<Roster>, Tag)>,
    /// The live workers as this process sees them.
    roster: Arc<Roster>,
}

struct OwnWorker {
    profile: Profile,
    beat_at: Duration,
}

impl PeerCache {
    /// Whether the roster shows the workers of this process, and there is no need to tell anybody about them.
    fn knows_own(&self) -> bool {
        let is_in = |roster: &Roster| {
            let mut own = self.own.iter();
            own.all(|(worker, own)| roster.profile_of(worker) == Some(&own.profile))
        };
        match &self.stored {
            Some((stored, _)) => is_in(stored),
            None => is_in(&self.roster) && self.has_only_own(&self.roster),
        }
    }

    fn has_only_own(&self, roster: &Roster) -> bool {
        roster.workers().all(|worker| self.own.contains_key(worker))
    }

    /// Uses the stored roster, or else the previous one, with the workers of this process in it.
    fn adopt(&mut self) {
        let known = match &self.stored {
            Some((stored, _)) => stored,
            None => &self.roster,
        };
        let mut roster = Roster::clone(known);
        for (worker, own) in &self.own {
            roster.set(worker.clone(), Some(own.profile.clone()));
        }
        self.roster = Arc::new(roster);
    }
}

impl DirectEngine {
    /// The worker's ranks among the live workers of a queue and type, as far as they are known; `None` if it is not one of them. Refreshes
    /// the roster in the background.
    pub(super) fn ranks(&self, name: &ReadyListName, worker: &WorkerId) -> Option<ShardRanks> {
        if self.is_peer_refresh_due() {
            let engine = self.clone();
            let refresh = async move { engine.refresh_peers_if_due().await };
            self.shared.runtime.spawn(Box::pin(refresh));
        }
        let roster = Arc::clone(&lock(&self.shared.peers.cache).roster);
        roster.ranks(&name.queue, &name.task_type, worker)
    }

    /// The position of this process among the live workers, by the first worker that it has registered.
    pub(super) fn standing(&self) -> Standing {
        let cache = lock(&self.shared.peers.cache);
        if cache.roster.is_empty() {
            return Standing::Alone;
        }
        let rank = cache.roster.rank_of(|peer| cache.own.contains_key(peer));
        rank.map_or(Standing::Outside, Standing::Ranked)
    }

    /// Whether this process does what two workers do for all: it has one of them, or there may be none.
    pub(super) fn is_among_first(&self) -> bool {
        !matches!(self.standing(), Standing::Ranked(Rank { rank: 2.., .. }))
    }

    /// Adds a worker of this process, which has sent a heartbeat.
    pub(super) async fn add_own_worker(&self, worker: &WorkerInfo) {
        {
            let beat_at = self.runtime().monotonic();
            let stale = Duration::from_millis(self.config().worker_stale_ms);
            let mut cache = lock(&self.shared.peers.cache);
            let own = OwnWorker {
                profile: Profile::of(worker),
                beat_at,
            };
            cache.own.insert(worker.worker_id.clone(), own);
            // A server registers the workers of others, which may go away without a word.
            cache.own.retain(|_, own| beat_at < own.beat_at + stale);
            if cache.knows_own() {
                return;
            }
            // A new worker gets its share of the work immediately.
            cache.refreshed_at = None;
        }
        // Maintenance may have begun a refresh before the worker was there. A worker whose rank is unknown takes tasks in random order, so it
        // waits for its own.
        let _refreshing = self.shared.peers.refreshing.lock().await;
        if self.is_peer_refresh_due() {
            self.refresh_peers().await;
        }
    }

    /// Forgets a worker that was removed, and takes it off the roster if it is one of this process.
    pub(super) async fn forget_worker(&self, worker: &WorkerId) {
        {
            let mut cache = lock(&self.shared.peers.cache);
            cache.refreshed_at = None;
            if cache.own.remove(worker).is_none() {
                return;
            }
            Arc::make_mut(&mut cache.roster).remove(worker);
        }
        let client = self.client().trying_once();
        if !self.read_roster(&client).await {
            return;
        }
        let stored = lock(&self.shared.peers.cache).stored.clone();
        if let Some((stored, tag)) = stored {
            let mut roster = Roster::clone(&stored);
            if roster.remove(worker) {
                self.write_roster(roster, Some(tag)).await;
            }
        }
    }

    /// Lists the workers with the next refresh, because one of them seems to be gone.
    pub(super) fn expect_new_peers(&self) {
        let mut cache = lock(&self.shared.peers.cache);
        cache.is_suspect = true;
        cache.refreshed_at = None;
    }

    fn is_peer_refresh_due(&self) -> bool {
        let now = self.runtime().monotonic();
        let cache = lock(&self.shared.peers.cache);
        let count = u32::try_from(cache.roster.len()).unwrap_or(u32::MAX);
        let interval = REFRESH_PER_PEER
            .saturating_mul(count)
            .clamp(REFRESH_MIN, REFRESH_MAX);
        cache.refreshed_at.is_none_or(|at| now >= at + interval)
    }

    /// Refreshes the roster, if it is old and nobody else refreshes it.
    pub(super) async fn refresh_peers_if_due(&self) {
        let Ok(_refreshing) = self.shared.peers.refreshing.try_lock() else {
            return;
        };
        if self.is_peer_refresh_due() {
            self.refresh_peers().await;
        }
    }

    /// Refreshes the roster. The caller holds the lock of refreshes.
    async fn refresh_peers(&self) {
        // A failed refresh is not repeated at once either.
        let now = self.runtime().monotonic();
        lock(&self.shared.peers.cache).refreshed_at = Some(now);
        if !self.read_roster(self.client()).await {
            return;
        }
        lock(&self.shared.peers.cache).adopt();
        if self.is_worker_list_due() {
            self.list_peers().await;
        }
    }

    /// Reads the stored roster, if it has changed. Returns false if that failed.
    async fn read_roster(&self, client: &StoreClient) -> bool {
        let stored = lock(&self.shared.peers.cache).stored.clone();
        let object = match &stored {
            Some((_, tag)) => client.get_if_changed(ROSTER_KEY, tag).await,
            None => client.get(ROSTER_KEY).await.map(Some),
        };
        let stored = match object {
            Ok(None) => return true,
            Ok(Some(object)) => Some((Arc::new(Roster::parse(&object.body)), object.tag)),
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => {
                tracing::debug!(%error, "could not read the roster; using the previous one");
                return false;
            }
        };
        lock(&self.shared.peers.cache).stored = stored;
        true
    }

    /// Whether it is up to this process to list the workers.
    fn is_worker_list_due(&self) -> bool {
        let now = self.runtime().monotonic();
        let cache = lock(&self.shared.peers.cache);
        let Some((stored, _)) = &cache.stored else {
            let listed_at = cache.listed_at.filter(|_| cache.knows_own());
            return listed_at.is_none_or(|at| now >= at + LIST_WITHOUT_ROSTER);
        };
        let limit_ms = if !cache.knows_own() {
            LIST_JOINING_MS
        } else if cache.is_suspect {
            LIST_SUSPECT_MS
        } else {
            // While the first one lists, this costs the others nothing. If several have died, the next one finds out soon.
            let rank = stored.rank_of(|peer| cache.own.contains_key(peer));
            rank.map_or(LIST_OTHERS_MS, |Rank { rank, .. }| {
                let after_ms = LIST_FIRST_MS.saturating_add(rank.saturating_mul(LIST_PER_RANK_MS));
                after_ms.min(LIST_OTHERS_MS)
            })
        };
        stored.age_ms(self.client().now()) >= limit_ms
    }

    /// Lists the workers, and writes the roster in the background.
    async fn list_peers(&self) {
        let Some(alive) = self.live_workers().await else {
            return;
        };
        let mut roster = Roster::new(self.client().now());
        for (worker, profile) in alive {
            roster.set(worker, profile);
        }
        let stored = {
            let mut cache = lock(&self.shared.peers.cache);
            cache.listed_at = Some(self.runtime().monotonic());
            cache.is_suspect = false;
            for (worker, own) in &cache.own {
                roster.set(worker.clone(), Some(own.profile.clone()));
            }
            cache.roster = Arc::new(roster.clone());
            if cache.stored.is_none() && cache.has_only_own(&roster) {
                return;
            }
            cache.stored.clone()
        };
        let engine = self.clone();
        self.shared.runtime.spawn(Box::pin(async move {
            engine
                .write_roster(roster, stored.map(|(_, tag)| tag))
                .await;
        }));
    }

    /// The live workers with what they serve, as far as that is known. Reads the records of new workers.
    async fn live_workers(&self) -> Option<BTreeMap<WorkerId, Option<Profile>>> {
        let known = Arc::clone(&lock(&self.shared.peers.cache).roster);
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
                    tracing::debug!(%error, "could not list the workers; using the previous roster");
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
                let profile = known.profile_of(&worker).cloned();
                if profile.is_none() {
                    unread.push((worker.clone(), entry.key));
                }
                alive.insert(worker, profile);
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
            let record =
                record.and_then(|object| serde_json::from_slice::<WorkerInfo>(&object.body).ok());
            alive.insert(worker, record.map(|record| Profile::of(&record)));
        }
        Some(alive)
    }

    /// Writes the roster, if it is still the one that was read.
    async fn write_roster(&self, roster: Roster, tag: Option<Tag>) {
        let op = self.runtime().new_op_id();
        let roster = roster.written_by(op);
        let Ok(body) = serde_json::to_vec(&roster).map(Bytes::from) else {
            return;
        };
        let client = self.client().trying_once();
        let written = match &tag {
            Some(tag) => client.swap(ROSTER_KEY, body, tag, &op).await,
            None => client.create(ROSTER_KEY, body, &op).await,
        };
        match written {
            Ok(written) => {
                if let Some(tag) = written.tag() {
                    lock(&self.shared.peers.cache).stored = Some((Arc::new(roster), tag.clone()));
                }
            }
            Err(error) => tracing::debug!(%error, "could not write the roster"),
        }
    }
}
