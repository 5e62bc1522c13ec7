//! Operations on all tasks that match a filter.
//!
//! Tasks are listed page by page and changed a few at a time. There is no transaction: each task changes on its own, and the report
//! covers all of them, even if the operation stops early. Running it again continues, because changed tasks no longer match.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use qo_core::{Status, Task, TaskId};
use qo_engine::api::TaskFilter;

use crate::error::Error;
use crate::queue::Queue;

/// Number of tasks changed concurrently.
const CONCURRENCY: usize = 32;
/// The operation stops after this number of failures, because more would fail for the same reason.
const FAILURES_MAX: usize = 1_000;

/// Result of an operation on all tasks that match a filter.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
#[must_use = "some tasks may have failed, or not been tried"]
pub struct BulkReport {
    /// Number of tasks that matched and were tried.
    pub matched: u64,
    /// Number of tasks for which it succeeded.
    pub done: u64,
    /// Tasks for which it failed, and why.
    pub failed: Vec<(TaskId, Error)>,
    /// Why the operation stopped before the last task, if it did.
    pub stopped: Option<Error>,
}

impl BulkReport {
    /// Returns the report, or an error if the operation stopped early or no task matched.
    pub fn some(self) -> Result<Self, Error> {
        match self.stopped {
            Some(error) => Err(error),
            None if self.matched == 0 => Err(Error::NothingMatched),
            None => Ok(self),
        }
    }
}

impl Queue {
    /// Counts the tasks that match a filter.
    pub async fn count(&self, filter: &TaskFilter) -> Result<u64, Error> {
        self.list_all(filter.clone())
            .try_fold(0, async |count, _| Ok(count + 1))
            .await
    }

    /// Cancels all tasks that match: pending and running ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn cancel_all(
        &self,
        filter: TaskFilter,
        reason: Option<&str>,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(filter, &[Status::Pending, Status::Running]);
        self.for_each(filter, keep_all, progress, |queue, id| {
            async move { queue.cancel(id, reason).await.map(drop) }.boxed()
        })
        .await
    }

    /// Replays all tasks that match: failed ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn replay_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(filter, &[Status::Failed]);
        self.for_each(filter, keep_all, progress, |queue, id| {
            async move { queue.replay(id).await.map(drop) }.boxed()
        })
        .await
    }

    /// Makes all matching tasks due now: pending ones, if the filter names no status. Skips pending tasks that are already due or
    /// expired.
    pub async fn run_now_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(filter, &[Status::Pending]);
        let now = self.now();
        let waits = move |task: &Task| {
            task.status != Status::Pending || (task.available_at > now && !task.is_expired(now))
        };
        self.for_each(filter, waits, progress, |queue, id| {
            async move { queue.run_now(id).await.map(drop) }.boxed()
        })
        .await
    }

    /// Archives all tasks that match: finished ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn archive_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(
            filter,
            &[Status::Completed, Status::Failed, Status::Cancelled],
        );
        self.for_each(filter, keep_all, progress, |queue, id| {
            async move { queue.archive(id).await.map(drop) }.boxed()
        })
        .await
    }

    /// Unarchives all tasks that match. Calls `progress` after each task.
    pub async fn unarchive_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(filter, &[Status::Archived]);
        self.for_each(filter, keep_all, progress, |queue, id| {
            async move { queue.unarchive(id).await.map(drop) }.boxed()
        })
        .await
    }

    /// Deletes all tasks that match: finished and archived ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn purge_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(filter, &ENDS);
        self.for_each(filter, keep_all, progress, purge).await
    }

    /// Deletes the tasks that finished longer than `age` ago and have one of these statuses: any finished or archived one, if
    /// `statuses` is empty. Calls `progress` after each task.
    pub async fn purge_older_than(
        &self,
        age: Duration,
        statuses: &[Status],
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = TaskFilter {
            statuses: statuses.to_vec(),
            ..TaskFilter::default()
        };
        let filter = with_statuses(filter, &ENDS);
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let limit = self.now().minus_millis(age_ms);
        let is_old = move |task: &Task| task.completed_at.unwrap_or(task.updated_at) < limit;
        self.for_each(filter, is_old, progress, purge).await
    }

    /// Applies `work` to all tasks that match.
    async fn for_each<'a>(
        &'a self,
        filter: TaskFilter,
        keep: impl Fn(&Task) -> bool,
        mut progress: impl FnMut(&BulkReport),
        work: impl Fn(&'a Self, TaskId) -> BoxFuture<'a, Result<(), Error>>,
    ) -> BulkReport {
        let mut report = BulkReport::default();
        let enough = AtomicBool::new(false);
        let found = self
            .list_all(filter)
            .take_while(|_| std::future::ready(!enough.load(Ordering::Relaxed)))
            .try_filter(|task| std::future::ready(keep(task)))
            .map_ok(|task| {
                let id = task.id;
                work(self, id).map(move |result| Ok((id, result)))
            })
            .try_buffer_unordered(CONCURRENCY);
        let mut found = std::pin::pin!(found);
        while let Some(tried) = found.next().await {
            match tried {
                // The list ends here; changes under way continue and are reported.
                Err(error) => {
                    report.stopped = Some(error);
                    continue;
                }
                Ok((_, Ok(()))) => report.done += 1,
                Ok((id, Err(error))) => report.failed.push((id, error)),
            }
            report.matched += 1;
            progress(&report);
            if report.failed.len() >= FAILURES_MAX {
                enough.store(true, Ordering::Relaxed);
            }
        }
        if enough.load(Ordering::Relaxed) && report.stopped.is_none() {
            report.stopped = Some(Error::TooManyFailures {
                failures: report.failed.len(),
            });
        }
        report
    }
}

const ENDS: [Status; 4] = [
    Status::Completed,
    Status::Failed,
    Status::Cancelled,
    Status::Archived,
];

fn purge(queue: &Queue, id: TaskId) -> BoxFuture<'_, Result<(), Error>> {
    queue.purge(id).boxed()
}

fn keep_all(_: &Task) -> bool {
    true
}

/// Restricts the filter to `statuses`, unless it names some.
fn with_statuses(mut filter: TaskFilter, statuses: &[Status]) -> TaskFilter {
    if filter.statuses.is_empty() {
        filter.statuses = statuses.to_vec();
    }
    filter
}
