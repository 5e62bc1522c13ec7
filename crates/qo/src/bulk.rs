//! One operation on all tasks that match a filter.
//!
//! The tasks are found page by page and worked on a few at a time. There is no transaction around it: each task is changed on
//! its own, and the report says what became of all of them, also if the walk had to stop. Running it again goes on where it
//! stopped, because what is done no longer matches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use qo_core::{Status, Task, TaskId};
use qo_engine::api::TaskFilter;

use crate::error::Error;
use crate::queue::Queue;

/// How many tasks are worked on at once.
const CONCURRENCY: usize = 32;
/// After so many failures the rest is not tried: something is wrong with all of them.
const FAILURES_MAX: usize = 1_000;

/// What came of an operation on all tasks that match a filter.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use = "some tasks may have failed, or not been tried"]
pub struct BulkReport {
    /// How many tasks matched and were tried.
    pub matched: u64,
    /// For how many of them it was done.
    pub done: u64,
    /// For which it was not, and why.
    pub failed: Vec<(TaskId, Error)>,
    /// Why the walk ended before it had seen all tasks, if it did.
    pub stopped: Option<Error>,
}

impl BulkReport {
    /// The report of a walk that saw all tasks and found one at least; otherwise the error that says so.
    pub fn some(self) -> Result<Self, Error> {
        match self.stopped {
            Some(error) => Err(error),
            None if self.matched == 0 => Err(Error::NothingMatched),
            None => Ok(self),
        }
    }
}

impl Queue {
    /// How many tasks match: a preview.
    pub async fn count(&self, filter: &TaskFilter) -> Result<u64, Error> {
        self.list_all(filter.clone())
            .try_fold(0, async |count, _| Ok(count + 1))
            .await
    }

    /// Calls off all that match; pending and running ones, if the filter names no status.
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

    /// Starts over all that match; failed ones, if the filter names no status.
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

    /// Puts away all that match; all that have come to their end, if the filter names no status.
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

    /// Undoes the archive of all that match.
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

    /// Removes all that match, for good; all that have come to their end, archived ones too, if the filter names no status.
    pub async fn purge_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let filter = with_statuses(filter, &ENDS);
        self.for_each(filter, keep_all, progress, purge).await
    }

    /// Removes, for good, the tasks that came to their end longer than `age` ago and have one of these statuses; any end, if
    /// none is named.
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

    /// Works on all tasks that match, and reports.
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
                // The list ends here, but what was begun goes on and is reported.
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

/// The filter, with the statuses in which the operation makes sense, if it names none.
fn with_statuses(mut filter: TaskFilter, statuses: &[Status]) -> TaskFilter {
    if filter.statuses.is_empty() {
        filter.statuses = statuses.to_vec();
    }
    filter
}
