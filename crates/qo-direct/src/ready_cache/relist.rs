//! When a ready list is listed again, with or without a signal.
//!
//! A worker lists in these cases:
//! - **It has used up its part of a page, and there are more.**
//! - **The signal announces new tasks that are assigned to it.** The signal says how many entries were added. If these are not enough for
//!   everybody, only some workers list, and a few more after a while, as backups. The others rely on the fallback interval, so that a trickle of
//!   tasks does not cost a LIST per task and idle worker.
//! - **It has seen tasks of others that it may steal by now.** The time counts from when the task was due, and from when the worker last had
//!   tasks of its own: at the end of a backlog, all others are about to finish too.
//! - **It has not listed for the fallback interval**, because a signal may have been lost.
//!
//! A newer batch that is assigned to others ends the wait of a backup or a thief: its workers take their shares of all tasks in the index, the
//! older ones included. Otherwise every task of a trickle would cost the LISTs of its backups. But a worker that has seen overdue tasks keeps
//! waiting for its time, unless the fleet is large: the owners of these tasks are busy, and a busy worker takes only its own tasks, whatever is
//! assigned to it.

use std::time::Duration;

use qo_core::{Timestamp, WorkerId};
use qo_store::runtime::RuntimeExt;

use super::{ReadyList, ReadyListName};
use crate::assignment::{Added, Assignment, ShardRanks, TaskShare, assign};
use crate::peers::Standing;
use crate::{DirectEngine, lock};

/// A large fleet lists without a signal less often, by a factor for each of so many workers, and at most by this one.
const FALLBACK_WORKERS: u64 = 20;
const FALLBACK_INTERVALS_MAX: u64 = 5;
/// How long a cached page is used before it is listed again. A busy worker uses up a page sooner; a slow one must not keep claiming
/// by an old order of urgency.
const PAGE_FRESH: Duration = Duration::from_secs(5);

/// Why a ready list needs a LIST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListReason {
    /// It was never listed, or not for the fallback interval.
    Unknown,
    /// There may be more.
    More,
    /// There are new entries, and the worker takes this share of them.
    Assigned(TaskShare),
}

impl DirectEngine {
    /// Why a ready list needs a LIST: its page is used up and there may be new entries, or its page is old and more urgent tasks may have
    /// been submitted since. `None` if it needs none.
    pub(super) fn list_reason(
        &self,
        list: &ReadyList,
        name: &ReadyListName,
        worker: &WorkerId,
    ) -> Option<ListReason> {
        let now = self.runtime().monotonic();
        let store_now = self.client().now();
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
            if cached.needs_relist || cached.due_at.is_some_and(|at| at <= store_now) {
                return Some(ListReason::More);
            }
            if epoch == change.epoch {
                if cached.steal_at.is_some_and(|at| at <= store_now) {
                    return Some(cached.share.map_or(ListReason::More, ListReason::Assigned));
                }
                return (now >= cached.fallback_at).then_some(ListReason::Unknown);
            }
            // A worker that was busy has missed earlier changes.
            let away = self.config().signal_interval * 2;
            let was_looking = looked_at.is_some_and(|at| now < at + away);
            (cached.listed_entries, was_looking)
        };
        let (Some(listed), Some(total), true) = (known, change.entries, was_looking) else {
            return Some(ListReason::More);
        };
        if name.in_order {
            return Some(ListReason::More);
        }
        let ranks = self.ranks(name, worker);
        let slots = ranks.as_ref().map_or(1, |ranks| ranks.slots);
        let Some(rank) = ranks.as_ref().and_then(ShardRanks::common) else {
            return Some(ListReason::More);
        };
        let added = Added {
            listed,
            batch: change.entries_before,
            total,
        };
        let steal_at = match assign(rank, slots, added) {
            Assignment::Everybody => return Some(ListReason::More),
            Assignment::Share(share) => return Some(ListReason::Assigned(share)),
            Assignment::Backup { delays } => {
                let delay_ms = self.config().steal_after_ms.saturating_mul(delays);
                Some(store_now.plus_millis(delay_ms))
            }
            Assignment::Others => None,
        };
        let mut cached = lock(&list.cached);
        if let Some((_, epoch)) = &mut cached.listed {
            *epoch = change.epoch;
        }
        cached.listed_entries = change.entries;
        if cached.has_overdue && !rank.is_of_many() {
            // The worker steals beside a backlog of others, and takes a new task like the older ones.
            cached.steal_at = cached.steal_at.into_iter().chain(steal_at).min();
        } else {
            cached.share = steal_at.map(|_| TaskShare::ALL);
            cached.steal_at = steal_at;
        }
        None
    }

    /// Whether nothing is known about a ready list: it was never listed, or not for the fallback interval, or everything may have changed.
    pub(crate) fn is_unknown(&self, name: &ReadyListName) -> bool {
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
    pub(crate) fn mark_empty(
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
            cached.listed_entries = change.known_entries;
            cached.looked_at = Some(self.runtime().monotonic());
        }
    }

    /// When a LIST for one of these ready lists may return more, without any signal.
    pub(crate) fn next_relist(&self, names: &[ReadyListName]) -> Option<Timestamp> {
        let lists = names.iter().map(|name| self.shared.ready_cache.list(name));
        let times = lists.flat_map(|list| {
            let cached = lock(&list.cached);
            [cached.due_at, cached.steal_at]
        });
        times.flatten().min()
    }

    /// Makes the next claim list again after a claim failed, so that the task is not skipped until the next signal.
    pub(crate) fn relist_soon(&self, name: &ReadyListName) {
        lock(&self.shared.ready_cache.list(name).cached).needs_relist = true;
    }

    /// Makes claims list again at `at`, when an entry that is not due yet becomes due.
    pub(crate) fn relist_at(&self, name: &ReadyListName, at: Timestamp) {
        let list = self.shared.ready_cache.list(name);
        let mut cached = lock(&list.cached);
        cached.due_at = Some(cached.due_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Remembers that an entry of a list was skipped because a limit is full.
    pub(crate) fn mark_skipped(&self, name: &ReadyListName) {
        lock(&self.shared.ready_cache.list(name).cached).skipped = true;
    }

    /// Makes claims list skipped entries again, because a limit may have room.
    pub(crate) fn relist_skipped(&self) {
        for list in lock(&self.shared.ready_cache.lists).values() {
            let mut cached = lock(&list.cached);
            if std::mem::take(&mut cached.skipped) {
                cached.needs_relist = true;
                cached.after = None;
            }
        }
    }

    /// How long a worker leaves the further pages to those that newer tasks are assigned to.
    pub(super) fn more_delay_ms(&self) -> u64 {
        let delay = self
            .config()
            .signal_interval
            .mul_f64(1.0 + self.runtime().random_unit());
        u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
    }

    /// When a list that was listed at `at` is listed again without a signal. The workers of a fleet do so at different times, because whichever
    /// comes first takes a task whose signal was lost or whose workers are busy; those of a large fleet do so less often.
    pub(crate) fn fallback_at(&self, at: Duration) -> Duration {
        let interval = self.config().fallback_interval;
        match self.standing() {
            Standing::Ranked(rank) if !rank.is_of_few() => {
                let intervals = (rank.count / FALLBACK_WORKERS).clamp(1, FALLBACK_INTERVALS_MAX);
                let factor = 0.5 + self.runtime().random_unit();
                #[expect(clippy::cast_precision_loss, reason = "the factor is a single digit")]
                let factor = factor * intervals as f64;
                at + interval.mul_f64(factor)
            }
            _ => at + interval,
        }
    }
}
