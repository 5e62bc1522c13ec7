//! Bulk operations that run in the background.
//!
//! They are kept in memory, so a restart of the server or a new leader ends them. That loses nothing: each task is changed separately, and a
//! repeated request continues with the rest, because changed tasks no longer match.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qo::{BulkOperation, BulkReport, BulkRequest, Timestamp};
use qo_core::{Actor, OpId};
use qo_remote::wire::{BulkFailure, BulkJobResponse, BulkResponse, BulkState, Condition, Problem};
use qo_store::runtime::RuntimeExt;
use tokio::sync::watch;

use crate::app::App;
use crate::author::Author;
use crate::response::{ApiError, problem_of};

/// The most operations at work at the same time.
const RUNNING_MAX: usize = 4;
/// How many operations are kept that have ended.
const ENDED_KEPT: usize = 100;
/// The most failures that are kept of an operation.
pub(crate) const FAILURES_KEPT: usize = 100;
/// How long an operation that is cancelled may take to finish the changes under way.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// The operations in the background, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct BulkJobs(Mutex<VecDeque<Arc<BulkJob>>>);

/// One operation.
#[derive(Debug)]
pub(crate) struct BulkJob {
    id: OpId,
    operation: BulkOperation,
    by: Option<Actor>,
    started_at: Timestamp,
    cancelled: watch::Sender<bool>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    state: BulkState,
    ended_at: Option<Timestamp>,
    result: BulkResponse,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BulkJobs {
    /// Starts an operation.
    pub(crate) fn start(
        &self,
        app: &App,
        request: BulkRequest,
        author: Author,
    ) -> Result<BulkJobResponse, ApiError> {
        let job = Arc::new(BulkJob {
            id: app.runtime().new_op_id(),
            operation: request.operation,
            by: author.0.clone(),
            started_at: app.now(),
            cancelled: watch::Sender::new(false),
            progress: Mutex::new(Progress {
                state: BulkState::Running,
                ended_at: None,
                result: response(&BulkReport::default()),
            }),
        });
        {
            let mut jobs = lock(&self.0);
            let running = jobs.iter().filter(|job| job.is_running()).count();
            if running >= RUNNING_MAX {
                return Err(ApiError::new(
                    Condition::Overloaded,
                    format!(
                        "{RUNNING_MAX} bulk operations are running, which is the maximum; try again when one has ended"
                    ),
                ));
            }
            while jobs.len() - running >= ENDED_KEPT {
                match jobs.iter().position(|job| !job.is_running()) {
                    Some(oldest) => drop(jobs.remove(oldest)),
                    None => break,
                }
            }
            jobs.push_back(Arc::clone(&job));
        }
        let started = job.shown();
        let run = run(app.clone(), job, request, author);
        app.runtime().spawn(Box::pin(run));
        Ok(started)
    }

    /// All operations, the newest first.
    pub(crate) fn list(&self) -> Vec<BulkJobResponse> {
        lock(&self.0).iter().rev().map(|job| job.shown()).collect()
    }

    /// One operation.
    pub(crate) fn get(&self, id: OpId) -> Result<Arc<BulkJob>, ApiError> {
        let found = lock(&self.0).iter().find(|job| job.id == id).cloned();
        found.ok_or_else(|| {
            ApiError::new(
                Condition::BulkNotFound { id },
                format!(
                    "there is no bulk operation {id}: it ended a while ago, or the server was restarted; repeat the request to continue with the remaining tasks"
                ),
            )
        })
    }
}

impl BulkJob {
    fn is_running(&self) -> bool {
        lock(&self.progress).state == BulkState::Running
    }

    fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Ends the operation after the changes under way.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// The operation as it is now.
    pub(crate) fn shown(&self) -> BulkJobResponse {
        let progress = lock(&self.progress);
        BulkJobResponse {
            id: self.id,
            operation: self.operation,
            state: progress.state,
            by: self.by.clone(),
            started_at: self.started_at,
            ended_at: progress.ended_at,
            result: progress.result.clone(),
        }
    }

    /// Records the result so far.
    fn record(&self, report: &BulkReport) {
        let mut progress = lock(&self.progress);
        let result = &mut progress.result;
        (result.matched, result.done) = (report.matched, report.done);
        result.failed = report.failed.len() as u64;
        let known = result.failures.len();
        let new = report.failed.iter().take(FAILURES_KEPT).skip(known);
        result.failures.extend(new.map(failure));
    }

    fn end(&self, state: BulkState, now: Timestamp, stopped: Option<Problem>, more: bool) {
        let mut progress = lock(&self.progress);
        progress.state = state;
        progress.ended_at = Some(now);
        progress.result.stopped = stopped;
        progress.result.more = more;
    }
}

async fn run(app: App, job: Arc<BulkJob>, request: BulkRequest, author: Author) {
    let goes_on = |report: &BulkReport| {
        job.record(report);
        !job.is_cancelled() && !app.is_stopping()
    };
    let mut cancelled = job.cancelled.subscribe();
    let given_up = async {
        tokio::select! {
            biased;
            () = async { drop(cancelled.wait_for(|cancelled| *cancelled).await) } => {}
            () = app.stopped() => {}
        }
        app.runtime().sleep(CANCEL_GRACE).await;
    };
    let report = tokio::select! {
        biased;
        report = app.queue.bulk_while(&request, goes_on) => Some(report),
        // It is looking for tasks, or the store does not respond.
        () = given_up => None,
    };
    let stopped = report.as_ref().and_then(|report| report.stopped.as_ref());
    let stopped = match stopped {
        Some(error) => Some(problem_of(error)),
        None if app.is_stopping() => Some(Problem::new(
            Condition::Stopping,
            "the server was stopped; send the request again to continue",
        )),
        None => None,
    };
    let state = match (&stopped, job.is_cancelled()) {
        (Some(_), _) => BulkState::Stopped,
        (None, true) => BulkState::Cancelled,
        (None, false) => BulkState::Finished,
    };
    let more = report.is_some_and(|report| report.more);
    job.end(state, app.now(), stopped, more);
    let shown = job.shown().result;
    let count = format!("{} of {} tasks", shown.done, shown.matched);
    author.log(request.operation.name(), &count);
}

/// A report as a response.
pub(crate) fn response(report: &BulkReport) -> BulkResponse {
    BulkResponse {
        dry_run: false,
        matched: report.matched,
        done: report.done,
        failed: report.failed.len() as u64,
        failures: report
            .failed
            .iter()
            .take(FAILURES_KEPT)
            .map(failure)
            .collect(),
        more: report.more,
        stopped: report.stopped.as_ref().map(problem_of),
    }
}

fn failure((id, error): &(qo::TaskId, qo::Error)) -> BulkFailure {
    BulkFailure {
        id: *id,
        problem: problem_of(error),
    }
}
