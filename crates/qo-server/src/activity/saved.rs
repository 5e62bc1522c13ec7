//! The counters of periods as they are stored, so that a restart or a new leader continues them.
//!
//! The size is bounded: the sixteen busiest combinations of queue and type are stored, and the others together as `other`. Empty buckets of
//! latencies are omitted.

use std::collections::BTreeMap;

use qo_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::slots::{Slot, Slots};
use super::{OTHER, Series};

/// The most combinations that are stored.
const SAVED_MAX: usize = 16;
/// The format. Another one is ignored: figures of the past are no reason not to start.
const VERSION: u32 = 1;

/// The stored counters.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedActivity {
    version: u32,
    /// Since when everything was counted.
    since: Option<Timestamp>,
    series: Vec<SavedSeries>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedSeries {
    queue: String,
    task_type: String,
    slots: Slots,
}

impl SavedActivity {
    pub(super) fn of(series: &BTreeMap<(String, String), Series>, since: Timestamp) -> Self {
        let mut by_changes: Vec<_> = series
            .iter()
            .filter(|(_, one)| !one.slots.is_empty())
            .collect();
        by_changes.sort_by_key(|(_, one)| std::cmp::Reverse(one.slots.changes()));
        let mut other = Slots::default();
        for (_, one) in by_changes.iter().skip(SAVED_MAX) {
            other.add(&one.slots);
        }
        let kept = by_changes.iter().take(SAVED_MAX);
        let mut saved: Vec<_> = kept
            .map(|((queue, task_type), one)| SavedSeries {
                queue: queue.clone(),
                task_type: task_type.clone(),
                slots: one.slots.clone(),
            })
            .collect();
        if !other.is_empty() {
            saved.push(SavedSeries {
                queue: OTHER.to_owned(),
                task_type: OTHER.to_owned(),
                slots: other,
            });
        }
        Self {
            version: VERSION,
            since: Some(since),
            series: saved,
        }
    }

    /// Since when the counters count, if this version can read them.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.since.filter(|_| self.version == VERSION)
    }

    /// The counters by queue and type.
    pub(super) fn into_slots(self) -> impl Iterator<Item = ((String, String), Slots)> {
        let series = self.series.into_iter();
        series.map(|one| ((one.queue, one.task_type), one.slots))
    }
}

/// The sum of all changes in a slot, to find the busiest.
pub(super) fn changes_in(slot: &Slot) -> u64 {
    slot.submitted + slot.completed + slot.failed + slot.cancelled + slot.retried
}
