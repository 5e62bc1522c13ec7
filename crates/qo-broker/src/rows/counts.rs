//! Counts of the finished tasks that are still kept.
//!
//! The database drops expired tasks one by one without a notification. So tasks are counted by the hour in which they finished,
//! and the counts of an hour are dropped as a whole, together with its last task.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{QueueState, Timestamp};
use qo_engine::api::Stats;

use super::keys::CountKey;
use crate::retention::Retention;

const HOUR_MS: u64 = 60 * 60 * 1_000;

/// The counts, by hour, queue, type and status.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counts: BTreeMap<CountKey, u64>,
    changed: BTreeSet<CountKey>,
}

impl Counts {
    /// Loads a stored count.
    pub(super) fn load(&mut self, key: CountKey, count: u64) {
        self.counts.insert(key, count);
    }

    /// The counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CountKey, u64)> {
        self.counts.iter().map(|(key, count)| (key, *count))
    }

    /// Moves a task from one count to another. `None` means that it is not counted.
    pub(super) fn move_task(&mut self, before: Option<CountKey>, after: Option<CountKey>) {
        if before == after {
            return;
        }
        if let Some(key) = before {
            if let Some(count) = self.counts.get_mut(&key) {
                *count = count.saturating_sub(1);
            }
            self.changed.insert(key);
        }
        if let Some(key) = after {
            *self.counts.entry(key.clone()).or_default() += 1;
            self.changed.insert(key);
        }
    }

    /// The counts that have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<(CountKey, u64)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|key| {
                let count = self.counts.get(&key).copied().unwrap_or(0);
                if count == 0 {
                    self.counts.remove(&key);
                }
                (key, count)
            })
            .collect()
    }

    /// Drops the counts of tasks that are kept in no queue any more. Counts are ordered by hour, so this looks only at those and at one more.
    pub(super) fn expire(&mut self, now: Timestamp, longest_retention_ms: u64) {
        while let Some(oldest) = self.counts.first_entry()
            && dropped_at(oldest.key(), longest_retention_ms) <= now
        {
            oldest.remove();
        }
    }

    /// Adds the counts to those of the live tasks.
    pub(super) fn add_to(
        &self,
        stats: &mut Stats,
        state: &QueueState,
        now: Timestamp,
        retention: Retention,
    ) {
        for (key, count) in &self.counts {
            let retention_ms = retention.of_ms(state, &key.queue);
            if *count == 0 || dropped_at(key, retention_ms) <= now {
                continue;
            }
            let queue = stats.queues.entry(key.queue.clone()).or_default();
            queue.add(&key.task_type, key.status, *count);
        }
    }
}

/// When the last task that is counted under a key is dropped.
pub(super) fn dropped_at(key: &CountKey, retention_ms: u64) -> Timestamp {
    Timestamp::MIN
        .plus_millis(key.hour.saturating_add(1).saturating_mul(HOUR_MS))
        .plus_millis(retention_ms)
}
