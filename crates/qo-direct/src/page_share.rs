//! What a worker does with a page of the ready index: it takes its own entries, or steals some of the others.

use qo_core::Timestamp;
use qo_core::keys::IndexEntry;
use qo_store::runtime::RuntimeExt;

use super::DirectEngine;

/// How many tasks assigned to other workers a worker steals at once.
const STEAL_MAX: usize = 16;

/// The part of a page that a worker takes.
pub(super) struct PageShare {
    /// The entries that it tries.
    pub(super) entries: Vec<IndexEntry>,
    /// When it lists again for the first of the others.
    pub(super) steal_at: Option<Timestamp>,
    /// When a page last had entries of its own.
    pub(super) had_own_at: Option<Timestamp>,
    /// Whether the page has entries for others that have been due for the steal time.
    pub(super) has_overdue: bool,
}

impl DirectEngine {
    /// The entries of a page that a worker should try. `delays` is the number of steal times that an entry is reserved for other workers; none
    /// for its own.
    pub(super) fn share_of(
        &self,
        entries: Vec<IndexEntry>,
        delays: impl Fn(&IndexEntry) -> u64,
        had_own_at: Option<Timestamp>,
    ) -> PageShare {
        let (own, others): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| delays(entry) == 0);
        let now = self.client().now();
        let had_own_at = if own.is_empty() {
            had_own_at
        } else {
            Some(now)
        };
        let steal_after_ms = self.config().steal_after_ms;
        let reserved_until = |entry: &IndexEntry| {
            let since = had_own_at.map_or(entry.available_at, |at| at.max(entry.available_at));
            since.plus_millis(steal_after_ms.saturating_mul(delays(entry)))
        };
        let is_overdue = |entry: &IndexEntry| entry.available_at.plus_millis(steal_after_ms) <= now;
        let has_overdue = others.iter().any(is_overdue);
        // Never immediately: an entry that no worker can claim must not make workers list in a tight loop.
        let soon = now.plus_millis(steal_after_ms / 4);
        if !own.is_empty() {
            let steal_at = others.iter().map(reserved_until).min();
            return PageShare {
                entries: own,
                steal_at: steal_at.map(|at| at.max(soon)),
                had_own_at,
                has_overdue,
            };
        }
        let (stealable, reserved): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|entry| reserved_until(entry) <= now);
        let steal_at = if stealable.len() > STEAL_MAX {
            Some(soon)
        } else {
            reserved.iter().map(reserved_until).min()
        };
        let mut stealable = self.shuffled(stealable);
        // Those that few others may steal yet come first.
        stealable.sort_by_key(|entry| (entry.priority, delays(entry)));
        stealable.truncate(STEAL_MAX);
        PageShare {
            entries: stealable,
            steal_at,
            had_own_at,
            has_overdue,
        }
    }

    /// Shuffles the entries within their priorities.
    pub(super) fn shuffled(&self, mut entries: Vec<IndexEntry>) -> Vec<IndexEntry> {
        for index in (1..entries.len()).rev() {
            let other = self.runtime().random_below(index as u64 + 1);
            entries.swap(index, usize::try_from(other).unwrap_or(index));
        }
        entries.sort_by_key(|entry| entry.priority);
        entries
    }
}
