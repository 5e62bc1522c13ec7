//! What a look into the ready index has shown, per queue and type, so that one page serves many claims.
//!
//! Workers that would all begin at the front would all try the same tasks. Instead each task has one worker that is expected to
//! take it, found by its id among the live workers of its queue and type ([`super::peers`]). A worker takes its own share of a
//! page; only when a page has nothing of its own does it help itself to what others have left lying, a few at random.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::keys::{IndexEntry, Key, ready_prefix};
use qo_core::{QueueName, Shard, TaskId, TaskType, Timestamp, WorkerId};
use qo_engine::EngineError;
use qo_store::runtime::RuntimeExt;

use super::{DirectEngine, lock};

/// How many tasks a worker takes at once that others were expected to take.
const STEAL_MAX: usize = 16;
/// How long what a page has shown is worked off before it is looked at again. A busy worker is through with a page before; a slow
/// one must not serve what was urgent an hour ago.
const PAGE_FRESH: Duration = Duration::from_secs(5);
/// How many lanes are remembered; beyond that the memory starts anew.
const LISTS_MAX: usize = 10_000;

/// Names a lane. Claims that ask for different shards do not share what they have seen: neither passes by what the other wants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyListName {
    pub(super) queue: QueueName,
    pub(super) task_type: TaskType,
    /// The shards that are asked for; all of them, if empty.
    pub(super) shards: Arc<[Shard]>,
}

#[derive(Default)]
pub(super) struct ReadyCache {
    lanes: Mutex<BTreeMap<ReadyListName, Arc<ReadyList>>>,
    /// The tasks that a claim of this process is trying right now: a list may still show them as ready.
    trying: Mutex<BTreeSet<TaskId>>,
}

/// A candidate that is being tried, until this is dropped.
pub(super) struct Trying<'a> {
    lanes: &'a ReadyCache,
    id: TaskId,
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        lock(&self.lanes.trying).remove(&self.id);
    }
}

#[derive(Default)]
pub(super) struct ReadyList {
    seen: Mutex<Seen>,
    /// Held while somebody lists, so that the claims of a process list once.
    listing: tokio::sync::Mutex<()>,
}

/// What the last look has shown.
#[derive(Default)]
struct Seen {
    entries: VecDeque<IndexEntry>,
    /// When, and after which signal.
    listed: Option<(Duration, u64)>,
    /// Whether there is more behind it, or something went wrong with an entry.
    more: bool,
    /// When there may be more to try, because another worker has left it lying for too long, or because it is due then.
    again_at: Option<Timestamp>,
}

impl ReadyListName {
    fn wants(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }
}

impl ReadyCache {
    /// Marks a candidate as being tried; nothing, if another claim of this process is at it.
    pub(super) fn try_one(&self, id: TaskId) -> Option<Trying<'_>> {
        let is_new = lock(&self.trying).insert(id);
        is_new.then(|| Trying { lanes: self, id })
    }

    fn lane(&self, name: &ReadyListName) -> Arc<ReadyList> {
        let mut lanes = lock(&self.lanes);
        if lanes.len() >= LISTS_MAX && !lanes.contains_key(name) {
            lanes.clear();
        }
        Arc::clone(lanes.entry(name.clone()).or_default())
    }
}

impl DirectEngine {
    /// A lane with what is known of its entries. Lists only if that is worth it.
    pub(super) async fn known_lane(
        &self,
        name: &ReadyListName,
        worker: &WorkerId,
    ) -> Result<Arc<ReadyList>, EngineError> {
        let lane = self.shared.ready_cache.lane(name);
        if !self.should_list(&lane) {
            return Ok(lane);
        }
        let listing = lane.listing.lock().await;
        // Somebody else may have listed while this one waited.
        if !self.should_list(&lane) {
            drop(listing);
            return Ok(lane);
        }
        let epoch = self.shared.signal.epoch();
        let at = self.runtime().monotonic();
        let prefix = ready_prefix(&name.queue, &name.task_type);
        let mut after = None;
        let (entries, next) = loop {
            let page = self
                .client()
                .page(&prefix, after.as_deref(), self.config().ready_page_size)
                .await?;
            let entries: Vec<IndexEntry> = page
                .entries
                .iter()
                .filter(|entry| !self.shared.index_gc.is_sweeping(&entry.key))
                .filter_map(|entry| match entry.key.parse() {
                    Ok(Key::Ready(entry)) => Some(entry),
                    _ => None,
                })
                .filter(|entry| name.wants(entry.id.shard()))
                .collect();
            match page.next {
                // All of this page is of other shards, or was claimed a moment ago and only waits to be cleared away: what is next?
                Some(next) if entries.is_empty() => after = Some(next),
                next => break (entries, next),
            }
        };
        let (share, again_at) = self.share_of(name, worker, entries).await;
        {
            let mut seen = lock(&lane.seen);
            seen.entries = share.into();
            seen.listed = Some((at, epoch));
            seen.more = next.is_some();
            seen.again_at = again_at;
        }
        drop(listing);
        Ok(lane)
    }

    /// When a look at one of these lanes may show more, without any signal.
    pub(super) fn next_look(&self, names: &[ReadyListName]) -> Option<Timestamp> {
        let lanes = names.iter().map(|name| self.shared.ready_cache.lane(name));
        lanes.filter_map(|lane| lock(&lane.seen).again_at).min()
    }

    /// Puts a candidate back that could not be tried, so that it is not forgotten until the next signal.
    pub(super) fn look_again(&self, name: &ReadyListName) {
        lock(&self.shared.ready_cache.lane(name).seen).more = true;
    }

    /// Has a lane looked at again at a time, because an entry that it shows is not due before.
    pub(super) fn look_again_at(&self, name: &ReadyListName, at: Timestamp) {
        let lane = self.shared.ready_cache.lane(name);
        let mut seen = lock(&lane.seen);
        seen.again_at = Some(seen.again_at.map_or(at, |known| known.min(at)));
    }

    /// Whether a lane is to be listed: nothing is known and a look can show something new, or what is known is old, and
    /// something more urgent may have come since.
    fn should_list(&self, lane: &ReadyList) -> bool {
        let seen = lock(&lane.seen);
        let now = self.runtime().monotonic();
        match seen.listed {
            None => true,
            Some((at, _)) if !seen.entries.is_empty() => now >= at + PAGE_FRESH,
            Some((at, epoch)) => {
                seen.more
                    || epoch != self.shared.signal.epoch()
                    || seen.again_at.is_some_and(|at| at <= self.client().now())
                    || now >= at + self.config().fallback_interval
            }
        }
    }

    /// The part of a page that a worker should try, and when the first of what it leaves to others may be taken by it.
    async fn share_of(
        &self,
        name: &ReadyListName,
        worker: &WorkerId,
        entries: Vec<IndexEntry>,
    ) -> (Vec<IndexEntry>, Option<Timestamp>) {
        if entries.is_empty() {
            return (entries, None);
        }
        let Some(ranks) = self.ranks(name, worker).await else {
            // Nobody knows of this worker, so nobody leaves anything to it. It begins anywhere.
            return (self.shuffled(entries, usize::MAX), None);
        };
        let owned = |entry: &IndexEntry| ranks.owns(entry.id);
        let (own, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(owned);
        let steal_after_ms = self.config().steal_after_ms;
        let left_until = |entry: &IndexEntry| entry.available_at.plus_millis(steal_after_ms);
        let now = self.client().now();
        // Never at once: an entry that nobody can take must not make workers look without a pause.
        let soon = now.plus_millis(steal_after_ms / 4);
        if !own.is_empty() {
            let steal_at = others.iter().map(left_until).min();
            return (own, steal_at.map(|at| at.max(soon)));
        }
        let (lying, fresh): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|entry| left_until(entry) <= now);
        let steal_at = if lying.len() > STEAL_MAX {
            Some(soon)
        } else {
            fresh.iter().map(left_until).min()
        };
        (self.shuffled(lying, STEAL_MAX), steal_at)
    }

    /// Some entries at random, within their priorities.
    fn shuffled(&self, mut entries: Vec<IndexEntry>, count: usize) -> Vec<IndexEntry> {
        for place in (1..entries.len()).rev() {
            let other = self.runtime().random_below(place as u64 + 1);
            entries.swap(place, usize::try_from(other).unwrap_or(place));
        }
        entries.sort_by_key(|entry| entry.priority);
        entries.truncate(count);
        entries
    }
}

impl ReadyList {
    fn take(&self, count: usize) -> Vec<IndexEntry> {
        let mut seen = lock(&self.seen);
        let count = count.min(seen.entries.len());
        seen.entries.drain(..count).collect()
    }

    /// How urgent its next entry is; less is more urgent.
    fn urgency(&self) -> Option<(u8, Timestamp)> {
        let seen = lock(&self.seen);
        let entry = seen.entries.front()?;
        Some((entry.priority, entry.available_at))
    }
}

/// Up to `count` entries of all lanes, the most urgent first. Whatever is not taken stays where it is.
pub(super) fn take_most_urgent(lanes: &[Arc<ReadyList>], count: usize) -> Vec<IndexEntry> {
    if let [lane] = lanes {
        return lane.take(count);
    }
    let ranked = |place: usize| {
        lanes[place]
            .urgency()
            .map(|urgency| Reverse((urgency, place)))
    };
    let mut heads: BinaryHeap<_> = (0..lanes.len()).filter_map(ranked).collect();
    let mut taken = Vec::new();
    while taken.len() < count
        && let Some(Reverse((_, place))) = heads.pop()
    {
        taken.extend(lanes[place].take(1));
        heads.extend(ranked(place));
    }
    taken
}
