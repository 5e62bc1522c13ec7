//! Cached pages of the ready index, per queue and type, so that one LIST serves many claims.
//!
//! If all workers started at the front of the index, they would race for the same tasks. Instead each task is assigned by its id to
//! one of the live workers of its queue and type ([`super::peers`]). A worker takes the entries of a page that are assigned to it.
//! If a page has none, it steals a few random entries that have waited too long for their worker.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::keys::{IndexEntry, Key, ready_prefix};
use qo_core::{QueueName, Shard, TaskId, TaskType, Timestamp, WorkerId};
use qo_engine::EngineError;
use qo_store::runtime::RuntimeExt;

use super::{DirectEngine, lock};

/// How many tasks assigned to other workers a worker steals at once.
const STEAL_MAX: usize = 16;
/// How long a cached page is used before it is listed again. A busy worker uses up a page sooner; a slow one must not keep claiming
/// by an old order of urgency.
const PAGE_FRESH: Duration = Duration::from_secs(5);
/// The maximum number of cached lists. At the limit the cache is cleared.
const LISTS_MAX: usize = 10_000;

/// Identifies a ready list. Claims for different shards do not share a list, because each list contains only the shards of its
/// claims.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyListName {
    pub(super) queue: QueueName,
    pub(super) task_type: TaskType,
    /// The requested shards; all shards if empty.
    pub(super) shards: Arc<[Shard]>,
}

#[derive(Default)]
pub(super) struct ReadyCache {
    lists: Mutex<BTreeMap<ReadyListName, Arc<ReadyList>>>,
    /// The tasks that this process is claiming right now. A LIST may still show them as ready.
    claiming: Mutex<BTreeSet<TaskId>>,
}

/// Marks a task as being claimed until it is dropped.
pub(super) struct ClaimInProgress<'a> {
    cache: &'a ReadyCache,
    id: TaskId,
}

impl Drop for ClaimInProgress<'_> {
    fn drop(&mut self) {
        lock(&self.cache.claiming).remove(&self.id);
    }
}

#[derive(Default)]
pub(super) struct ReadyList {
    cached: Mutex<CachedPage>,
    /// Locked during a LIST, so that concurrent claims of a process list once.
    listing: tokio::sync::Mutex<()>,
}

/// The page that the last LIST returned.
#[derive(Default)]
struct CachedPage {
    entries: VecDeque<IndexEntry>,
    /// When the page was listed, and at which signal epoch.
    listed: Option<(Duration, u64)>,
    /// Whether another LIST is needed: the index has more entries, or a claim failed.
    needs_relist: bool,
    /// When another LIST may return more: a task becomes due, or one assigned to another worker may be stolen.
    relist_at: Option<Timestamp>,
}

impl ReadyListName {
    fn includes(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }
}

impl ReadyCache {
    /// Marks a task as being claimed; `None` if another claim of this process is trying it already.
    pub(super) fn begin_claim(&self, id: TaskId) -> Option<ClaimInProgress<'_>> {
        let is_new = lock(&self.claiming).insert(id);
        is_new.then(|| ClaimInProgress { cache: self, id })
    }

    fn list(&self, name: &ReadyListName) -> Arc<ReadyList> {
        let mut lists = lock(&self.lists);
        if lists.len() >= LISTS_MAX && !lists.contains_key(name) {
            lists.clear();
        }
        Arc::clone(lists.entry(name.clone()).or_default())
    }
}

impl DirectEngine {
    /// Returns a ready list. Sends a LIST only if the cached page is used up or too old.
    pub(super) async fn ready_list(
        &self,
        name: &ReadyListName,
        worker: &WorkerId,
    ) -> Result<Arc<ReadyList>, EngineError> {
        let list = self.shared.ready_cache.list(name);
        if !self.should_list(&list) {
            return Ok(list);
        }
        let listing = list.listing.lock().await;
        // Another claim may have listed in the meantime.
        if !self.should_list(&list) {
            drop(listing);
            return Ok(list);
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
                .filter(|entry| !self.shared.index_gc.is_pending(&entry.key))
                .filter_map(|entry| match entry.key.parse() {
                    Ok(Key::Ready(entry)) => Some(entry),
                    _ => None,
                })
                .filter(|entry| name.includes(entry.id.shard()))
                .filter(|entry| !self.shared.left_alone.contains(entry.id, at))
                .collect();
            match page.next {
                // All entries belong to other shards, or were just claimed and are about to be deleted: read the next page.
                Some(next) if entries.is_empty() => after = Some(next),
                next => break (entries, next),
            }
        };
        let (share, relist_at) = self.share_of(name, worker, entries).await;
        {
            let mut cached = lock(&list.cached);
            cached.entries = share.into();
            cached.listed = Some((at, epoch));
            cached.needs_relist = next.is_some();
            cached.relist_at = relist_at;
        }
        drop(listing);
        Ok(list)
    }

    /// When a LIST for one of these ready lists may return more, without any signal.
    pub(super) fn next_relist(&self, names: &[ReadyListName]) -> Option<Timestamp> {
        let lists = names.iter().map(|name| self.shared.ready_cache.list(name));
        lists.filter_map(|list| lock(&list.cached).relist_at).min()
    }

    /// Makes the next claim list again after a claim failed, so that the task is not skipped until the next signal.
    pub(super) fn relist_soon(&self, name: &ReadyListName) {
        lock(&self.shared.ready_cache.list(name).cached).needs_relist = true;
    }

    /// Makes claims list again at `at`, when an entry that is not due yet becomes due.
    pub(super) fn relist_at(&self, name: &ReadyListName, at: Timestamp) {
        let list = self.shared.ready_cache.list(name);
        let mut cached = lock(&list.cached);
        cached.relist_at = Some(cached.relist_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether a ready list needs a LIST: its page is used up and there may be new entries, or its page is old and more urgent
    /// tasks may have been submitted since.
    fn should_list(&self, list: &ReadyList) -> bool {
        let cached = lock(&list.cached);
        let now = self.runtime().monotonic();
        match cached.listed {
            None => true,
            Some((at, _)) if !cached.entries.is_empty() => now >= at + PAGE_FRESH,
            Some((at, epoch)) => {
                cached.needs_relist
                    || epoch != self.shared.signal.epoch()
                    || cached.relist_at.is_some_and(|at| at <= self.client().now())
                    || now >= at + self.config().fallback_interval
            }
        }
    }

    /// The entries of a page that a worker should try, and when it may steal the first of the others.
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
            // The worker is not registered, so no tasks are assigned to it. It takes all entries in random order.
            return (self.shuffled(entries, usize::MAX), None);
        };
        let owned = |entry: &IndexEntry| ranks.owns(entry.id);
        let (own, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(owned);
        let steal_after_ms = self.config().steal_after_ms;
        let reserved_until = |entry: &IndexEntry| entry.available_at.plus_millis(steal_after_ms);
        let now = self.client().now();
        // Never immediately: an entry that no worker can claim must not make workers list in a tight loop.
        let soon = now.plus_millis(steal_after_ms / 4);
        if !own.is_empty() {
            let steal_at = others.iter().map(reserved_until).min();
            return (own, steal_at.map(|at| at.max(soon)));
        }
        let (stealable, reserved): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|entry| reserved_until(entry) <= now);
        let steal_at = if stealable.len() > STEAL_MAX {
            Some(soon)
        } else {
            reserved.iter().map(reserved_until).min()
        };
        (self.shuffled(stealable, STEAL_MAX), steal_at)
    }

    /// Shuffles the entries within their priorities and keeps the first `count`.
    fn shuffled(&self, mut entries: Vec<IndexEntry>, count: usize) -> Vec<IndexEntry> {
        for index in (1..entries.len()).rev() {
            let other = self.runtime().random_below(index as u64 + 1);
            entries.swap(index, usize::try_from(other).unwrap_or(index));
        }
        entries.sort_by_key(|entry| entry.priority);
        entries.truncate(count);
        entries
    }
}

impl ReadyList {
    fn take(&self, count: usize) -> Vec<IndexEntry> {
        let mut cached = lock(&self.cached);
        let count = count.min(cached.entries.len());
        cached.entries.drain(..count).collect()
    }

    /// The priority and due time of the next entry. Lower is more urgent.
    fn urgency(&self) -> Option<(u8, Timestamp)> {
        let cached = lock(&self.cached);
        let entry = cached.entries.front()?;
        Some((entry.priority, entry.available_at))
    }
}

/// Takes up to `count` entries from all lists, most urgent first. The other entries stay in their lists.
pub(super) fn take_most_urgent(lists: &[Arc<ReadyList>], count: usize) -> Vec<IndexEntry> {
    if let [list] = lists {
        return list.take(count);
    }
    let head = |index: usize| {
        lists[index]
            .urgency()
            .map(|urgency| Reverse((urgency, index)))
    };
    let mut heads: BinaryHeap<_> = (0..lists.len()).filter_map(head).collect();
    let mut taken = Vec::new();
    while taken.len() < count
        && let Some(Reverse((_, index))) = heads.pop()
    {
        taken.extend(lists[index].take(1));
        heads.extend(head(index));
    }
    taken
}
