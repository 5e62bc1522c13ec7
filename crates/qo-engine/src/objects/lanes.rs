//! What a look into the ready index has shown, per queue and type, so that one page serves many claims.
//!
//! Workers that would all begin at the front would all try the same tasks. Instead each task has one worker that is expected to
//! take it, found by its id among the live workers of its queue and type ([`super::peers`]). A worker takes its own share of a
//! page; only when a page has nothing of its own does it help itself to what others have left lying, a few at random.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::keys::{IndexEntry, Key, ready_prefix};
use qo_core::{QueueName, TaskId, TaskType, WorkerId};
use qo_store::world::WorldExt;

use super::{ObjectsEngine, lock};
use crate::error::EngineError;

/// How many tasks a worker takes at once that others were expected to take.
const STEAL_MAX: usize = 16;
/// How many lanes are remembered; beyond that the memory starts anew.
const LANES_MAX: usize = 10_000;

/// Names a lane.
pub(super) type LaneName = (QueueName, TaskType);

#[derive(Default)]
pub(super) struct Lanes {
    lanes: Mutex<BTreeMap<LaneName, Arc<Lane>>>,
    /// The tasks that a claim of this process is trying right now: a list may still show them as ready.
    trying: Mutex<BTreeSet<TaskId>>,
}

/// A candidate that is being tried, until this is dropped.
pub(super) struct Trying<'a> {
    lanes: &'a Lanes,
    id: TaskId,
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        lock(&self.lanes.trying).remove(&self.id);
    }
}

#[derive(Default)]
pub(super) struct Lane {
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
}

impl Lanes {
    /// Marks a candidate as being tried; nothing, if another claim of this process is at it.
    pub(super) fn try_one(&self, id: TaskId) -> Option<Trying<'_>> {
        let is_new = lock(&self.trying).insert(id);
        is_new.then(|| Trying { lanes: self, id })
    }

    fn lane(&self, name: &LaneName) -> Arc<Lane> {
        let mut lanes = lock(&self.lanes);
        if lanes.len() >= LANES_MAX && !lanes.contains_key(name) {
            lanes.clear();
        }
        Arc::clone(lanes.entry(name.clone()).or_default())
    }
}

impl ObjectsEngine {
    /// Up to `count` entries to try, the most urgent first, of one lane. Lists only if that can show something new.
    pub(super) async fn candidates(
        &self,
        name: &LaneName,
        worker: &WorkerId,
        count: usize,
    ) -> Result<Vec<IndexEntry>, EngineError> {
        let lane = self.shared.lanes.lane(name);
        let taken = lane.take(count);
        if !taken.is_empty() || !self.may_show_more(&lane) {
            return Ok(taken);
        }
        let _listing = lane.listing.lock().await;
        // Somebody else may have listed while this one waited.
        let taken = lane.take(count);
        if !taken.is_empty() || !self.may_show_more(&lane) {
            return Ok(taken);
        }
        let epoch = self.shared.signal.epoch();
        let at = self.world().monotonic();
        let page = self
            .client()
            .page(
                &ready_prefix(&name.0, &name.1),
                None,
                self.config().ready_page_size,
            )
            .await?;
        let entries = page
            .entries
            .iter()
            .filter(|entry| !self.shared.broom.is_sweeping(&entry.key))
            .filter_map(|entry| match entry.key.parse() {
                Ok(Key::Ready(entry)) => Some(entry),
                _ => None,
            });
        let share = self.share_of(name, worker, entries.collect()).await;
        let mut seen = lock(&lane.seen);
        seen.entries = share.into();
        seen.listed = Some((at, epoch));
        seen.more = page.next.is_some();
        drop(seen);
        Ok(lane.take(count))
    }

    /// Puts a candidate back that could not be tried, so that it is not forgotten until the next signal.
    pub(super) fn look_again(&self, name: &LaneName) {
        lock(&self.shared.lanes.lane(name).seen).more = true;
    }

    /// How many entries of a lane are known and untried.
    fn may_show_more(&self, lane: &Lane) -> bool {
        let seen = lock(&lane.seen);
        match seen.listed {
            None => true,
            Some((at, epoch)) => {
                seen.more
                    || epoch != self.shared.signal.epoch()
                    || self.world().monotonic() >= at + self.config().fallback_interval
            }
        }
    }

    /// The part of a page that a worker should try.
    async fn share_of(
        &self,
        name: &LaneName,
        worker: &WorkerId,
        entries: Vec<IndexEntry>,
    ) -> Vec<IndexEntry> {
        if entries.is_empty() {
            return entries;
        }
        let Some((rank, peers)) = self.rank(name, worker).await else {
            // Nobody knows of this worker, so nobody leaves anything to it. It begins anywhere.
            return self.shuffled(entries, usize::MAX);
        };
        let owned = |entry: &IndexEntry| entry.id.as_uuid().as_u128() % peers == rank;
        let (own, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(owned);
        if !own.is_empty() {
            return own;
        }
        let now = self.client().now();
        let left_lying = others
            .into_iter()
            .filter(|entry| entry.available_at.plus_millis(self.config().steal_after_ms) <= now)
            .collect();
        self.shuffled(left_lying, STEAL_MAX)
    }

    /// Some entries at random, within their priorities.
    fn shuffled(&self, mut entries: Vec<IndexEntry>, count: usize) -> Vec<IndexEntry> {
        for place in (1..entries.len()).rev() {
            let other = self.world().random_below(place as u64 + 1);
            entries.swap(place, usize::try_from(other).unwrap_or(place));
        }
        entries.sort_by_key(|entry| entry.priority);
        entries.truncate(count);
        entries
    }
}

impl Lane {
    fn take(&self, count: usize) -> Vec<IndexEntry> {
        let mut seen = lock(&self.seen);
        let count = count.min(seen.entries.len());
        seen.entries.drain(..count).collect()
    }
}
