//! Promotes scheduled tasks to the ready index when they become due.
//!
//! Their entries are under `later/`, ordered by due time, so one LIST from the front returns all due entries and the next due time.
//! Promotion writes the ready entry first and then deletes the later entry. A crash between the two leaves one entry too many,
//! never one too few. Any number of processes may promote concurrently.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::Timestamp;
use qo_core::keys::{Key, LATER_PREFIX};
use qo_engine::EngineError;

use super::{DirectEngine, lock};

#[derive(Default)]
pub(super) struct Scheduled {
    schedule: Mutex<Schedule>,
    /// Locked during a promotion.
    promoting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Schedule {
    /// The earliest due time of the known entries.
    next_due: Option<Timestamp>,
    /// When the entries were last listed, and at which signal epoch.
    listed: Option<(Duration, u64)>,
}

impl Scheduled {
    /// Records that a task becomes due at `at`.
    pub(super) fn record_due(&self, at: Timestamp) {
        let mut schedule = lock(&self.schedule);
        schedule.next_due = Some(schedule.next_due.map_or(at, |due| due.min(at)));
    }

    /// The earliest due time of the known entries.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        lock(&self.schedule).next_due
    }
}

impl DirectEngine {
    /// Promotes due tasks to the ready index, if there may be any.
    pub(super) async fn promote_due(&self) -> Result<(), EngineError> {
        let scheduled = &self.shared.scheduled;
        let Ok(_promoting) = scheduled.promoting.try_lock() else {
            return Ok(());
        };
        loop {
            let epoch = self.shared.signal.epoch();
            let at = self.runtime().monotonic();
            let now = self.client().now();
            {
                let schedule = lock(&scheduled.schedule);
                let is_due = schedule.next_due.is_some_and(|due| due <= now);
                let is_stale = schedule.listed.is_none_or(|(listed_at, listed_epoch)| {
                    listed_epoch != epoch || at >= listed_at + self.config().fallback_interval
                });
                if !is_due && !is_stale {
                    return Ok(());
                }
            }
            let page = self
                .client()
                .page(LATER_PREFIX, None, self.config().ready_page_size)
                .await?;
            let entries = page
                .entries
                .iter()
                .filter_map(|entry| match entry.key.parse() {
                    Ok(Key::Later(entry)) => Some(entry),
                    _ => None,
                });
            let (due, not_due): (Vec<_>, Vec<_>) =
                entries.partition(|entry| entry.available_at <= now);
            let whole_page_due = not_due.is_empty() && page.next.is_some();
            let promoted = due.len();
            let results: Vec<Result<Key, EngineError>> = futures_util::stream::iter(due)
                .map(|entry| async move {
                    self.put_entry(&Key::Ready(entry.clone())).await?;
                    Ok(Key::Later(entry))
                })
                .buffer_unordered(self.config().concurrency)
                .collect()
                .await;
            let stale = results.into_iter().collect::<Result<Vec<_>, _>>()?;
            self.shared.index_gc.enqueue(stale);
            let mut listed_epoch = epoch;
            if promoted > 0 {
                // The next LIST must not return these entries again.
                self.shared.index_gc.flush().await;
                self.shared.signal.bump();
                // Count this own bump. Any other bump means that there may be an entry that this LIST did not return.
                listed_epoch += 1;
            }
            {
                let mut schedule = lock(&scheduled.schedule);
                schedule.next_due = not_due.iter().map(|entry| entry.available_at).min();
                schedule.listed = Some((at, listed_epoch));
            }
            if !whole_page_due {
                return Ok(());
            }
            lock(&scheduled.schedule).listed = None;
        }
    }
}
