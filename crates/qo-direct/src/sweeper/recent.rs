//! Checks the newest tasks, apart from the passes over all tasks.
//!
//! A pass over millions of finished tasks takes hours. A task whose submitter died before it wrote the ready entry must not wait for it. In
//! each shard, the ids that qo generates are in the order of their creation, so one LIST per shard returns the tasks that were created since
//! the last check, whatever is behind them. It runs every sweep interval, also while the indexes are tidied.
//!
//! Three kinds of tasks are not found this way: those with an id that the caller chose, for which a repeated submit writes the entry
//! again; those created by a process whose clock is wrong by more than the overlap of the checks and that chose the id before it knew the
//! store's time; and old ones that are replayed, whose change leaves a marker for the lease reaper ([`super::super::change`]). A pass finds
//! them too.

use qo_core::keys::{Key, tasks_prefix};
use qo_core::{Shard, TaskId, Timestamp};
use qo_store::client::PAGE_LIMIT_MAX;

use super::super::DirectEngine;
use super::cursor::SweepRecord;
use super::{CheckedRecords, SweepReport};

/// The maximum number of pages of a shard in one check. The next check repeats a check that reached the limit.
const PAGES_MAX: usize = 100;

impl DirectEngine {
    /// Checks the tasks that were created from a time on. If a LIST or a read fails, the next check repeats it.
    pub(super) async fn sweep_recent(
        &self,
        from: Timestamp,
        now: Timestamp,
        record: &mut SweepRecord,
        checked: &mut CheckedRecords,
        report: &mut SweepReport,
    ) {
        let (tasks, missed) = (record.tasks, record.missed);
        record.missed = false;
        let mut is_complete = true;
        for shard in Shard::all() {
            let mut after = Some(Key::Task(TaskId::first_of(shard, from)).to_string());
            for _ in 0..PAGES_MAX {
                let Some(start) = after.take() else {
                    break;
                };
                let prefix = tasks_prefix(shard);
                let page = self
                    .client()
                    .page(&prefix, Some(&start), PAGE_LIMIT_MAX)
                    .await;
                match page {
                    Ok(page) => {
                        self.sweep_tasks(&page.entries, record, checked, report)
                            .await;
                        after = page.next;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "could not list the newest tasks; trying again later");
                        is_complete = false;
                    }
                }
            }
            is_complete &= after.is_none();
        }
        if is_complete && !record.missed {
            record.set_recent_checked(now);
        }
        (record.tasks, record.missed) = (tasks, missed);
    }
}
