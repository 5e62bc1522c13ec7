//! Operations on all tasks that match a filter.
//!
//! Tasks are listed page by page and changed a few at a time. There is no transaction: each task changes on its own, and the report
//! covers all of them, even if the operation stops early. Running it again continues, because changed tasks no longer match.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use qo_core::{QueueName, Status, Task, TaskId};
use qo_engine::api::TaskFilter;
use qo_engine::{BulkOperation, BulkRequest};

use crate::error::{Error, ErrorKind};
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
    /// Whether the request's limit was reached, and more tasks match.
    pub more: bool,
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

    /// Applies an operation to all tasks that the request selects. Calls `progress` after each task.
    pub async fn bulk(
        &self,
        request: &BulkRequest,
        mut progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let goes_on = |report: &BulkReport| {
            progress(report);
            true
        };
        self.bulk_while(request, goes_on).await
    }

    /// Applies an operation to all tasks that the request selects, while `goes_on`, which is called after each task, returns true. Changes
    /// under way are then finished and reported.
    pub async fn bulk_while(
        &self,
        request: &BulkRequest,
        mut goes_on: impl FnMut(&BulkReport) -> bool,
    ) -> BulkReport {
        let mut report = BulkReport::default();
        let (enough, too_many) = (AtomicBool::new(false), AtomicBool::new(false));
        let limit = request.limit.unwrap_or(u64::MAX);
        let (taken, more) = (AtomicU64::new(0), AtomicBool::new(false));
        let found = self
            .selected(request)
            .take_while(|_| {
                let is_over = taken.load(Ordering::Relaxed) >= limit;
                more.fetch_or(is_over, Ordering::Relaxed);
                std::future::ready(!is_over && !enough.load(Ordering::Relaxed))
            })
            .inspect_ok(|_| {
                taken.fetch_add(1, Ordering::Relaxed);
            })
            .map_ok(|id| async move { Ok((id, self.bulk_one(request, id).await)) })
            .try_buffer_unordered(CONCURRENCY);
        let mut found = std::pin::pin!(found);
        while let Some(tried) = found.next().await {
            match tried {
                // The list ends here; changes under way continue and are reported.
                Err(error) => {
                    report.stopped = Some(error);
                    continue;
                }
                Ok((_, Ok(_))) => report.done += 1,
                Ok((id, Err(error))) => report.failed.push((id, error)),
            }
            report.matched += 1;
            let is_full = report.failed.len() >= FAILURES_MAX;
            too_many.fetch_or(is_full, Ordering::Relaxed);
            if !goes_on(&report) || is_full {
                enough.store(true, Ordering::Relaxed);
            }
        }
        report.more = more.load(Ordering::Relaxed);
        if too_many.load(Ordering::Relaxed) && report.stopped.is_none() {
            report.stopped = Some(Error::TooManyFailures {
                failures: report.failed.len(),
            });
        }
        report
    }

    /// Counts the tasks that [`Queue::bulk`] would change.
    pub async fn count_bulk(&self, request: &BulkRequest) -> Result<u64, Error> {
        if request.ids.is_empty() {
            return self
                .selected(request)
                .try_fold(0, async |count, _| Ok(count + 1))
                .await;
        }
        let now = self.now();
        let mut tasks = stream::iter(request.ids.iter().copied())
            .map(|id| self.get(id))
            .buffer_unordered(CONCURRENCY);
        let mut count = 0;
        while let Some(task) = tasks.next().await {
            match task {
                Ok(task) => {
                    let is_allowed = request.filter.statuses.contains(&task.status);
                    count += u64::from(is_allowed && request.applies_to(&task, now));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// The tasks that a request selects.
    fn selected<'a>(&'a self, request: &'a BulkRequest) -> BoxStream<'a, Result<TaskId, Error>> {
        if !request.ids.is_empty() {
            return stream::iter(request.ids.iter().copied().map(Ok)).boxed();
        }
        let now = self.now();
        self.list_all(request.filter.clone())
            .try_filter(move |task| std::future::ready(request.applies_to(task, now)))
            .map_ok(|task| task.id)
            .boxed()
    }

    /// Applies the operation of a request to one task, whether the filter selects it or not. Returns the changed task; `None` if it
    /// was purged.
    pub async fn bulk_one(&self, request: &BulkRequest, id: TaskId) -> Result<Option<Task>, Error> {
        match request.on_task()? {
            Some(operation) => self.act(id, operation).await.map(Some),
            None => self.purge(id).await.map(|()| None),
        }
    }

    /// Cancels all tasks that match: pending and running ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn cancel_all(
        &self,
        filter: TaskFilter,
        reason: Option<&str>,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let mut request = BulkRequest::new(BulkOperation::Cancel).with_filter(filter);
        request.reason = reason.map(str::to_owned);
        self.bulk(&request, progress).await
    }

    /// Replays all tasks that match: failed ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn replay_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let request = BulkRequest::new(BulkOperation::Replay).with_filter(filter);
        self.bulk(&request, progress).await
    }

    /// Moves all tasks that match to another queue: pending and failed ones, unless the filter names statuses. Skips tasks that are already
    /// there. Calls `progress` after each task.
    pub async fn redrive_all(
        &self,
        filter: TaskFilter,
        to: QueueName,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let request = BulkRequest::redrive(to).with_filter(filter);
        self.bulk(&request, progress).await
    }

    /// Makes all matching tasks due now: pending ones, if the filter names no status. Skips pending tasks that are already due or
    /// expired.
    pub async fn run_now_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let request = BulkRequest::new(BulkOperation::RunNow).with_filter(filter);
        self.bulk(&request, progress).await
    }

    /// Archives all tasks that match: finished ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn archive_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let request = BulkRequest::new(BulkOperation::Archive).with_filter(filter);
        self.bulk(&request, progress).await
    }

    /// Unarchives all tasks that match. Calls `progress` after each task.
    pub async fn unarchive_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let request = BulkRequest::new(BulkOperation::Unarchive).with_filter(filter);
        self.bulk(&request, progress).await
    }

    /// Deletes all tasks that match: finished and archived ones, unless the filter names statuses. Calls `progress` after each task.
    pub async fn purge_all(
        &self,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        let request = BulkRequest::new(BulkOperation::Purge).with_filter(filter);
        self.bulk(&request, progress).await
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
        let mut request = BulkRequest::new(BulkOperation::Purge).with_filter(filter);
        request.older_than = Some(age);
        self.bulk(&request, progress).await
    }
}
