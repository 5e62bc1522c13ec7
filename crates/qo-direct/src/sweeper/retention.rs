//! Purges finished tasks after the retention time, if one is set.
//!
//! The pass over the tasks sees by the time of a record's last write that the retention time may have passed, reads the record, and purges
//! the task ([`super::super::purge`]) if it is finished and its idempotency key is no longer needed. One step of the sweep purges a bounded
//! number of tasks; the rest are left to the next pass. A crash at any point leaves a finished task, an interrupted purge, which the next
//! pass repeats, or nothing.

use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::{Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::client::Entry;

use super::super::DirectEngine;
use super::SweepReport;

/// The maximum number of tasks that one step purges.
const PURGES_MAX: usize = 500;
/// How many tasks are purged at once. Each purge takes several requests.
const CONCURRENCY: usize = 8;

impl DirectEngine {
    /// Purges the finished tasks of a page whose retention time has passed.
    pub(super) async fn purge_old(
        &self,
        entries: &[Entry],
        retention: Duration,
        report: &mut SweepReport,
    ) {
        let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        let before = self.client().now().minus_millis(retention_ms);
        let left = PURGES_MAX.saturating_sub(report.purged);
        let old = entries.iter().filter(|entry| entry.last_modified < before);
        let old = old.filter_map(|entry| match entry.key.parse() {
            Ok(Key::Task(id)) => Some(id),
            _ => None,
        });
        let old: Vec<TaskId> = old.take(left).collect();
        let mut purges = futures_util::stream::iter(old)
            .map(|id| async move { (id, self.purge_if_old(id, before).await) })
            .buffer_unordered(CONCURRENCY);
        while let Some((id, result)) = purges.next().await {
            match result {
                Ok(is_purged) => report.purged += usize::from(is_purged),
                // It was changed, replayed or purged in the meantime, or cannot be read.
                Err(EngineError::Rejected(_) | EngineError::Unreadable { .. }) => {}
                Err(error) => {
                    tracing::debug!(task = %id, %error, "could not purge a finished task; trying again in the next pass");
                    report.failed += 1;
                }
            }
        }
    }

    async fn purge_if_old(&self, id: TaskId, before: Timestamp) -> Result<bool, EngineError> {
        let task = self.read(id).await?.task;
        if !is_disposable(&task, before, self.client().now()) {
            return Ok(false);
        }
        self.purge_task(id).await?;
        Ok(true)
    }
}

/// Whether a task has been finished since before a time, and its idempotency key may be used again. A key without an end is valid as long
/// as its task is kept, and does not keep it.
fn is_disposable(task: &Task, before: Timestamp, now: Timestamp) -> bool {
    let key_is_free = task.idempotency_until.is_none_or(|until| until <= now);
    task.is_settled() && task.updated_at < before && key_is_free
}
