//! Cached pages of the ready index, per queue and type, so that one LIST serves many claims.
//!
//! If all workers started at the front of the index, they would race for the same tasks. Three rules keep them apart; the live workers of a
//! queue and type are known from [`super::peers`]:
//! - **Each task is assigned by its id to one worker.** A worker takes the entries of a page that are assigned to it. If a page has none, it
//!   steals a few random entries that have waited too long for their worker. The worker next in rank lists again for them when they have; the
//!   others much later, so that a new task does not cost a LIST of every worker that has seen it.
//! - **A few new tasks wake a few workers.** The signal says how many entries were added. If there are fewer than workers, they are dealt out
//!   in turn, and one more worker looks after a while, in case one of these is busy or gone. The others rely on the fallback interval, so
//!   that a trickle of tasks does not cost a LIST per task and idle worker.
//! - **A long index is worked on in many places.** A page holds the shares of a few dozen workers. In a larger fleet, the further workers
//!   begin further back, at a distance that they estimate from the times in the first page.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::keys::{IndexEntry, Key, ready_prefix};
use qo_core::{QueueName, Shard, TaskId, TaskType, Timestamp, WorkerId};
use qo_engine::EngineError;
use qo_store::client::Page;
use qo_store::runtime::RuntimeExt;

use super::peers::{Rank, ShardRanks, Standing};
use super::signal_record::ready_topic;
use super::{DirectEngine, lock};

/// How many tasks assigned to other workers a worker steals at once.
const STEAL_MAX: usize = 16;
/// How many times longer a worker waits before it lists again for the tasks of another worker, if a third one is the first to steal them.
const OTHERS_DELAYS: u64 = 5;
/// A fleet of more than twice this many workers lists without a signal less often, by at most this factor.
const FALLBACK_WORKERS: u64 = 20;
const FALLBACK_INTERVALS_MAX: u64 = 5;
/// How long a cached page is used before it is listed again. A busy worker uses up a page sooner; a slow one must not keep claiming
/// by an old order of urgency.
const PAGE_FRESH: Duration = Duration::from_secs(5);
/// The maximum number of cached lists. At the limit the cache is cleared.
const LISTS_MAX: usize = 10_000;
/// How many entries of a page a worker should find assigned to it. A fleet that is too large for this begins at several places.
const SHARE: usize = 32;
/// How many workers beyond those that new tasks are dealt to look for them, after the steal time.
const BACKUPS: u64 = 1;

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
    /// When another LIST may return more: a task becomes due, or one assigned to another worker may be stolen.
    relist_at: Option<Timestamp>,
}

/// Why a ready list needs a LIST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListReason {
    /// It was never listed, or not for the fallback interval.
    Unknown,
    /// There may be more.
    More,
    /// There are this many new entries, of which the worker at this position takes its share.
    Dealt { position: u64, entries: u64 },
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
        let ranks = if page.entries.is_empty() {
            None
        } else {
            self.ranks(name, worker)
        };
        let mut entries = self.parse_page(&page, name, at);
        let mut group = None;
        if let Some(rank) = ranks.as_ref().and_then(ShardRanks::common)
            && let Some(place) = place_of(rank, page_size)
            && page.next.is_some()
        {
            group = (place.number == 0).then_some(place.rank);
            if let Some(after) = start_of(&entries, place.number) {
                let further = self.client().page(&prefix, Some(&after), page_size).await?;
                let parsed = self.parse_page(&further, name, at);
                // Behind the end of the index, the front is shared by all.
                if !parsed.is_empty() {
                    group = Some(place.rank);
                    (entries, page) = (parsed, further);
                }
            }
        }
        let is_empty = entries.is_empty();
        let (share, relist_at) = match &ranks {
            // The worker is not registered, so no tasks are assigned to it. It takes all entries in random order.
            None => (self.shuffled(entries, usize::MAX), None),
            Some(ranks) => {
                let index_of: BTreeMap<TaskId, u64> = (0..)
                    .zip(&entries)
                    .map(|(index, entry)| (entry.id, index))
                    .collect();
                let owns = |entry: &IndexEntry| match (reason, group) {
                    (ListReason::Dealt { position, entries }, _) => index_of
                        .get(&entry.id)
                        .is_some_and(|index| index % entries == position),
                    (_, Some(rank)) => rank.owns(entry.id),
                    (_, None) => ranks.owns(entry.id),
                };
                let backs_up = |entry: &IndexEntry| match (reason, group) {
                    // Another worker looks after what is dealt out.
                    (ListReason::Dealt { .. }, _) => false,
                    (_, Some(rank)) => rank.backs_up(entry.id),
                    (_, None) => ranks.backs_up(entry.id),
                };
                self.share_of(entries, owns, backs_up)
            }
        };
        {
            let mut cached = lock(&list.cached);
            cached.entries = share.into();
            cached.listed = Some((at, change.epoch));
            cached.fallback_at = self.fallback_at(at);
            cached.listed_entries = change.entries;
            cached.needs_relist = page.next.is_some();
            cached.relist_at = relist_at;
            if is_empty {
                // All entries belong to other shards, cannot be read, or were just claimed: go on behind them.
                cached.after = page.next;
                if cached.after.is_some() {
                    cached.relist_at = Some(self.client().now());
                }
            }
        }
        drop(listing);
        Ok(list)
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
                name.includes(entry.id.shard()) && !self.shared.left_alone.contains(entry.id, now)
            })
            .collect()
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

    /// Why a ready list needs a LIST: its page is used up and there may be new entries, or its page is old and more urgent tasks may have
    /// been submitted since. `None` if it needs none.
    fn list_reason(
        &self,
        list: &ReadyList,
        name: &ReadyListName,
        worker: &WorkerId,
    ) -> Option<ListReason> {
        let now = self.runtime().monotonic();
        let change = self.shared.signal.change_of(&name.topic());
        let (known, was_looking) = {
            let mut cached = lock(&list.cached);
            let looked_at = cached.looked_at.replace(now);
            let Some((at, epoch)) = cached.listed else {
                return Some(ListReason::Unknown);
            };
            if !cached.entries.is_empty() {
                return (now >= at + PAGE_FRESH).then_some(ListReason::More);
            }
            let is_due = cached.relist_at.is_some_and(|at| at <= self.client().now());
            if cached.needs_relist || is_due {
                return Some(ListReason::More);
            }
            if epoch == change.epoch {
                return (now >= cached.fallback_at).then_some(ListReason::Unknown);
            }
            // A worker that was busy has missed earlier changes.
            let away = self.config().signal_interval * 2;
            let was_looking = looked_at.is_some_and(|at| now < at + away);
            (cached.listed_entries, was_looking)
        };
        let (Some(before), Some(after), true) = (known, change.entries, was_looking) else {
            return Some(ListReason::More);
        };
        let ranks = self.ranks(name, worker);
        let Some(rank) = ranks.as_ref().and_then(ShardRanks::common) else {
            return Some(ListReason::More);
        };
        let added = after.saturating_sub(before);
        if added == 0 || added >= rank.count {
            return Some(ListReason::More);
        }
        let position = (rank.rank + rank.count - before % rank.count) % rank.count;
        if position < added {
            return Some(ListReason::Dealt {
                position,
                entries: added,
            });
        }
        // The new tasks are dealt to others.
        let mut cached = lock(&list.cached);
        if let Some((_, epoch)) = &mut cached.listed {
            *epoch = change.epoch;
        }
        cached.listed_entries = change.entries;
        if position < added + BACKUPS {
            let at = self
                .client()
                .now()
                .plus_millis(self.config().steal_after_ms);
            cached.relist_at.get_or_insert(at);
        }
        None
    }

    /// When a list that was listed at `at` is listed again without a signal. The workers of a large fleet do so less often, and at different
    /// times: whichever comes first takes a task whose signal was lost.
    pub(super) fn fallback_at(&self, at: Duration) -> Duration {
        let interval = self.config().fallback_interval;
        match self.standing() {
            Standing::Ranked(Rank { count, .. }) if count >= 2 * FALLBACK_WORKERS => {
                let intervals = (count / FALLBACK_WORKERS).min(FALLBACK_INTERVALS_MAX);
                let factor = 0.5 + self.runtime().random_unit();
                #[expect(clippy::cast_precision_loss, reason = "the factor is a single digit")]
                let factor = factor * intervals as f64;
                at + interval.mul_f64(factor)
            }
            _ => at + interval,
        }
    }

    /// Whether nothing is known about a ready list: it was never listed, or not for the fallback interval, or everything may have changed.
    pub(super) fn is_unknown(&self, name: &ReadyListName) -> bool {
        let list = self.shared.ready_cache.list(name);
        let cached = lock(&list.cached);
        let Some((_, epoch)) = cached.listed else {
            return true;
        };
        let changed = self.shared.signal.epoch_of(&name.topic());
        let is_old = self.runtime().monotonic() >= cached.fallback_at;
        let is_quiet = cached.entries.is_empty() && !cached.needs_relist;
        let all_changed = changed == self.shared.signal.all_changed();
        is_quiet && ((epoch == changed && is_old) || (epoch != changed && all_changed))
    }

    /// Records that a ready list was found empty at a time and an epoch of the signal, without a LIST of its own.
    pub(super) fn mark_empty(
        &self,
        name: &ReadyListName,
        at: Duration,
        epoch: u64,
        fallback_at: Duration,
    ) {
        let change = self.shared.signal.change_of(&name.topic());
        if change.epoch > epoch {
            return;
        }
        let list = self.shared.ready_cache.list(name);
        let mut cached = lock(&list.cached);
        if cached.entries.is_empty() {
            cached.listed = Some((at, change.epoch));
            cached.fallback_at = fallback_at;
            cached.listed_entries = change.entries;
            cached.looked_at = Some(self.runtime().monotonic());
        }
    }

    /// The entries of a page that a worker should try, and when it should list again for the first of the others.
    fn share_of(
        &self,
        entries: Vec<IndexEntry>,
        owned: impl Fn(&IndexEntry) -> bool,
        backs_up: impl Fn(&IndexEntry) -> bool,
    ) -> (Vec<IndexEntry>, Option<Timestamp>) {
        let (own, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(owned);
        let steal_after_ms = self.config().steal_after_ms;
        let reserved_until = |entry: &IndexEntry| entry.available_at.plus_millis(steal_after_ms);
        let list_at = |entry: &IndexEntry| {
            let delays = if backs_up(entry) { 1 } else { OTHERS_DELAYS };
            entry.available_at.plus_millis(steal_after_ms * delays)
        };
        let now = self.client().now();
        // Never immediately: an entry that no worker can claim must not make workers list in a tight loop.
        let soon = now.plus_millis(steal_after_ms / 4);
        if !own.is_empty() {
            let steal_at = others.iter().map(list_at).min();
            return (own, steal_at.map(|at| at.max(soon)));
        }
        let (stealable, reserved): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|entry| reserved_until(entry) <= now);
        let steal_at = if stealable.len() > STEAL_MAX {
            Some(soon)
        } else {
            reserved.iter().map(list_at).min()
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

/// Where in a long index a worker begins, and its rank among the workers there.
struct Place {
    number: u64,
    rank: Rank,
}

/// The place of a worker in an index of several pages; `None` if one page has enough for all workers.
fn place_of(rank: Rank, page_size: usize) -> Option<Place> {
    let per_place = u64::try_from((page_size / SHARE).max(1)).unwrap_or(u64::MAX);
    if rank.count <= per_place {
        return None;
    }
    let number = rank.rank / per_place;
    let count = per_place.min(rank.count - number * per_place);
    Some(Place {
        number,
        rank: Rank {
            rank: rank.rank % per_place,
            count,
        },
    })
}

/// The key after which the page of a place begins, as far as the times in the first page show. The pages of the places overlap or leave
/// gaps where tasks were submitted at another rate; the next LIST of a nearer place closes the gaps.
fn start_of(first_page: &[IndexEntry], place: u64) -> Option<String> {
    let (first, last) = (first_page.first()?, first_page.last()?);
    if place == 0 || first.priority != last.priority {
        return None;
    }
    let span_ms = last.available_at.as_millis() - first.available_at.as_millis();
    let distance_ms = u64::try_from(span_ms).ok()?.saturating_mul(place);
    let start = IndexEntry {
        available_at: first.available_at.plus_millis(distance_ms),
        id: TaskId::from_bytes([0; 16]),
        ..first.clone()
    };
    Some(Key::Ready(start).to_string())
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
