//! Cached pages of the ready index, per queue and type, so that one LIST serves many claims.
//!
//! If all workers started at the front of the index, they would race for the same tasks. [`super::assignment`] says which tasks of a page are
//! for whom; the live workers of a queue and type are known from [`super::peers`]. [`relist`] says when a worker lists again.

mod relist;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::keys::{IndexEntry, Key, ready_prefix};
use qo_core::{QueueName, Shard, TaskId, TaskType, Timestamp, WorkerId};
use qo_engine::EngineError;
use qo_store::client::Page;

use self::relist::ListReason;
use super::assignment::{Rank, ShardRanks, TaskShare, start_key, starting_point};
use super::page_share::PageShare;
use super::signal_record::ready_topic;
use super::{DirectEngine, lock};

/// How many steal times a worker waits for a task of a shard that it does not claim from by its record.
const FOREIGN_DELAYS: u64 = 5;
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
    /// Whether the entries are tried strictly in their order, whoever they are meant for.
    pub(super) in_order: bool,
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
    /// When the page was listed, and at which epoch of its topic.
    listed: Option<(Duration, u64)>,
    /// How many entries had ever been added to the topic then, if known.
    listed_entries: Option<u64>,
    /// When it is listed again without a signal.
    fallback_at: Duration,
    /// When a claim last looked whether there is something new.
    looked_at: Option<Duration>,
    /// Whether another LIST is needed: the index has more entries, or a claim failed.
    needs_relist: bool,
    /// Where the next LIST begins: the last page had nothing for this process, but there are more.
    after: Option<String>,
    /// When another LIST may return more, because a task becomes due.
    due_at: Option<Timestamp>,
    /// When a task that is meant for another worker may be stolen.
    steal_at: Option<Timestamp>,
    /// What this process takes then: its assigned share, if the index had more than a page, or what others have left.
    share: Option<TaskShare>,
    /// When a page last had entries for this process.
    had_own_at: Option<Timestamp>,
    /// Whether the page had entries for others that had been due for the steal time.
    has_overdue: bool,
    /// Whether entries were skipped because a limit is full.
    skipped: bool,
}

impl ReadyListName {
    /// The topic of the signal.
    pub(super) fn topic(&self) -> String {
        ready_topic(&self.queue, &self.task_type)
    }

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
    /// Returns a ready list. Sends a LIST only if the cached page is used up or too old, and at most one, or two at a place further back.
    pub(super) async fn ready_list(
        &self,
        name: &ReadyListName,
        worker: &WorkerId,
    ) -> Result<Arc<ReadyList>, EngineError> {
        let list = self.shared.ready_cache.list(name);
        let listed = lock(&list.cached).listed;
        let Some(mut reason) = self.list_reason(&list, name, worker) else {
            return Ok(list);
        };
        let listing = list.listing.lock().await;
        if lock(&list.cached).listed != listed {
            // Another claim has listed in the meantime.
            let Some(now) = self.list_reason(&list, name, worker) else {
                drop(listing);
                return Ok(list);
            };
            reason = now;
        }
        let change = self.shared.signal.change_of(&name.topic());
        let at = self.runtime().monotonic();
        let after = lock(&list.cached).after.take();
        let prefix = ready_prefix(&name.queue, &name.task_type);
        let page_size = self.config().ready_page_size;
        let mut page = self
            .client()
            .page(&prefix, after.as_deref(), page_size)
            .await?;
        let ranks = if page.entries.is_empty() || name.in_order {
            None
        } else {
            self.ranks(name, worker)
        };
        let mut entries = self.parse_page(&page, name, at);
        let mut group = None;
        if let Some(rank) = ranks.as_ref().and_then(ShardRanks::common)
            && let Some(place) = starting_point(rank, page_size)
            && page.next.is_some()
            && !matches!(reason, ListReason::Assigned(_))
        {
            group = (place.number == 0).then_some(place.rank);
            if let Some(after) = start_key(&entries, place.number) {
                let further = self.client().page(&prefix, Some(&after), page_size).await?;
                let parsed = self.parse_page(&further, name, at);
                // Behind the end of the index, the front is shared by all.
                if !parsed.is_empty() {
                    group = Some(place.rank);
                    (entries, page) = (parsed, further);
                }
            }
        }
        let listed_count = entries.len();
        if self.any_limit_full() {
            entries.retain(|entry| !self.waits_for_limit(entry));
        }
        let has_skipped = entries.len() < listed_count;
        let is_empty = entries.is_empty();
        let has_more = page.next.is_some();
        let had_own_at = lock(&list.cached).had_own_at;
        let share = self.share_page(entries, name, reason, ranks.as_ref(), group, had_own_at);
        {
            let mut cached = lock(&list.cached);
            cached.entries = share.entries.into();
            cached.listed = Some((at, change.epoch));
            cached.fallback_at = self.fallback_at(at);
            cached.listed_entries = change.known_entries;
            cached.needs_relist = has_more;
            cached.due_at = None;
            cached.steal_at = share.steal_at;
            cached.had_own_at = share.had_own_at;
            cached.has_overdue = share.has_overdue;
            cached.share = None;
            cached.skipped |= has_skipped;
            if let ListReason::Assigned(share) = reason
                && has_more
            {
                // The rest is for the workers that newer tasks are assigned to, and for this one if there are none.
                let more_at = self.client().now().plus_millis(self.more_delay_ms());
                cached.needs_relist = false;
                cached.share = Some(share);
                cached.steal_at = Some(cached.steal_at.map_or(more_at, |at| at.min(more_at)));
            }
            if is_empty {
                // All entries belong to other shards, cannot be read, were just claimed, or wait for a limit: continue behind them.
                cached.after = page.next;
                if cached.after.is_some() {
                    cached.due_at = Some(self.client().now());
                }
            }
        }
        drop(listing);
        Ok(list)
    }

    /// The part of a page that this process takes.
    fn share_page(
        &self,
        entries: Vec<IndexEntry>,
        name: &ReadyListName,
        reason: ListReason,
        ranks: Option<&ShardRanks>,
        group: Option<Rank>,
        had_own_at: Option<Timestamp>,
    ) -> PageShare {
        match ranks {
            None if name.in_order => PageShare {
                entries,
                steal_at: None,
                had_own_at,
                has_overdue: false,
            },
            // The worker is not registered, so no tasks are assigned to it. It takes all entries in random order.
            None => PageShare {
                entries: self.shuffled(entries),
                steal_at: None,
                had_own_at,
                has_overdue: false,
            },
            Some(ranks) => {
                let delays =
                    |entry: &IndexEntry| match (reason, group.or_else(|| ranks.of(entry.id))) {
                        (ListReason::Assigned(share), _) if share.includes(entry.id) => 0,
                        (ListReason::Assigned(_), Some(rank)) => rank.steal_delays(entry.id).max(1),
                        (_, Some(rank)) => rank.steal_delays(entry.id),
                        (_, None) => FOREIGN_DELAYS,
                    };
                self.share_of(entries, delays, had_own_at)
            }
        }
    }

    /// The entries of a page that this claim may try.
    fn parse_page(&self, page: &Page, name: &ReadyListName, now: Duration) -> Vec<IndexEntry> {
        let entries = page
            .entries
            .iter()
            .filter(|entry| !self.shared.index_gc.is_pending(&entry.key))
            .filter_map(|entry| match entry.key.parse() {
                Ok(Key::Ready(entry)) => Some(entry),
                _ => None,
            });
        entries
            .filter(|entry| {
                name.includes(entry.id.shard()) && !self.shared.unclaimable.contains(entry.id, now)
            })
            .collect()
    }
}

impl ReadyList {
    /// Skips some of the cached entries, until a limit has room again.
    pub(super) fn drop_entries(&self, waits_for_limit: impl Fn(&IndexEntry) -> bool) {
        let mut cached = lock(&self.cached);
        let before = cached.entries.len();
        cached.entries.retain(|entry| !waits_for_limit(entry));
        cached.skipped |= cached.entries.len() < before;
    }

    fn take(&self, count: usize) -> Vec<IndexEntry> {
        let mut cached = lock(&self.cached);
        let count = count.min(cached.entries.len());
        cached.entries.drain(..count).collect()
    }

    /// The priority and place of the next entry. Lower is more urgent.
    fn urgency(&self) -> Option<(u8, Timestamp)> {
        let cached = lock(&self.cached);
        let entry = cached.entries.front()?;
        Some((entry.priority, entry.place()))
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
