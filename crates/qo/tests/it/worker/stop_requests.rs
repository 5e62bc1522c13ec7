//! Handlers that are asked to stop, by a cancel or a timeout.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::testing::{TestClock, memory_queue};
use qo::{Context, Queue, Status, StopReason, Task, TaskError, TaskInput, Worker};

use super::{Gate, Job, job, soon, while_time_passes};

/// What the handler observed, and when it was dropped.
#[derive(Clone, Default)]
struct Observed {
    started: Gate,
    reason: Arc<Mutex<Option<StopReason>>>,
    dropped: Gate,
}

/// Opens a gate when dropped.
struct OpenOnDrop(Gate);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}

async fn endless(job: Job, context: Context) -> Result<String, TaskError> {
    let observed = context.state::<Observed>().ok_or("no state")?;
    let _guard = OpenOnDrop(observed.dropped.clone());
    observed.started.open();
    context.cancellation().cancelled().await;
    *observed.reason.lock().unwrap() = context.stop_reason();
    match job.name.as_str() {
        "obedient" => Err(TaskError::Cancelled),
        "done anyway" => Ok("just in time".to_owned()),
        "spoilt" => Err(TaskError::permanent("spoilt")),
        _ => std::future::pending().await,
    }
}

/// Runs one task whose handler waits for a stop request; `meanwhile` runs once it has started.
async fn run(
    name: &str,
    meanwhile: impl AsyncFnOnce(&Queue, &Task),
) -> (Task, Observed, TestClock, Queue) {
    let (queue, clock) = memory_queue().unwrap();
    let task = queue.task(Job::TYPE, &job(name)).unwrap();
    let task = task.timeout(Duration::from_mins(1)).submit().await.unwrap();
    let observed = Observed::default();
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(endless)
        .state(observed.clone())
        .build()
        .unwrap();
    let acting = async {
        observed.started.wait_for(1).await;
        meanwhile(&queue, &task.task).await;
    };
    let both = async {
        let (report, ()) = tokio::join!(worker.drain(), acting);
        assert_eq!(report.unwrap().attempts(), 1);
    };
    soon("the drain", while_time_passes(&clock, both)).await;
    assert_eq!(observed.dropped.opened(), 1, "the handler was dropped");
    let ended = queue.get(task.task.id).await.unwrap();
    (ended, observed, clock, queue)
}

async fn cancel(queue: &Queue, task: &Task) {
    queue
        .cancel(task.id, Some("changed my mind"))
        .await
        .unwrap();
}

async fn wait(_: &Queue, _: &Task) {}

#[tokio::test]
async fn a_cancel_reaches_the_handler() {
    for name in ["obedient", "stubborn"] {
        let (task, observed, clock, _) = run(name, cancel).await;
        assert_eq!(task.status, Status::Cancelled, "{name}");
        assert_eq!(
            *observed.reason.lock().unwrap(),
            Some(StopReason::Cancelled)
        );
        let took = clock.now().since(task.started_at.unwrap());
        assert!(took < Duration::from_secs(30), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn a_success_or_permanent_failure_wins_over_a_cancel() {
    let (task, _, _, queue) = run("done anyway", cancel).await;
    assert_eq!(task.status, Status::Completed);
    let output = queue.output(&task).await.unwrap().unwrap();
    assert_eq!(output.as_str(), "\"just in time\"");
    let (task, ..) = run("spoilt", cancel).await;
    assert_eq!(task.status, Status::Failed);
}

#[tokio::test]
async fn a_timeout_ends_the_attempt() {
    for name in ["obedient", "stubborn"] {
        let (task, observed, _, _) = run(name, wait).await;
        assert_eq!(
            (task.status, task.retry_count),
            (Status::Pending, 1),
            "{name}"
        );
        assert_eq!(*observed.reason.lock().unwrap(), Some(StopReason::TimedOut));
        assert_eq!(task.last_error.as_deref(), Some("timed out after 60 s"));
        let ended = task.events.last().unwrap().at;
        let took = ended.since(task.events[1].at);
        let bounds = if name == "obedient" { 60..62 } else { 65..67 };
        assert!(bounds.contains(&took.as_secs()), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn a_success_within_the_grace_period_counts() {
    let (task, ..) = run("done anyway", wait).await;
    assert_eq!(task.status, Status::Completed);
}

#[tokio::test]
async fn a_handler_can_renew_and_report_progress_until_the_attempt_is_over() {
    type SavedContext = Arc<Mutex<Option<Context>>>;
    async fn reports(_: Job, context: Context) -> Result<(), TaskError> {
        let saved = context.state::<SavedContext>().ok_or("no state")?;
        context.renew().await?;
        assert!(context.progress(101.0, "too much").await.is_err());
        assert!(context.progress(f64::NAN, "").await.is_err());
        for percent in 0..=100 {
            context.progress(f64::from(percent), "on it").await?;
        }
        *saved.lock().unwrap() = Some(context.clone());
        context.renew().await?;
        Ok(())
    }
    let (queue, _clock) = memory_queue().unwrap();
    let task = super::submit(&queue, "x").await;
    let saved = SavedContext::default();
    let worker = Worker::builder(queue.clone()).handle::<Job>(reports);
    let worker = worker.state(Arc::clone(&saved)).build().unwrap();
    assert_eq!(worker.drain().await.unwrap().completed, 1);
    let late = saved.lock().unwrap().take().unwrap();
    let error = late.renew().await.unwrap_err();
    assert_eq!(error.kind(), qo::ErrorKind::LeaseLost, "{error}");
    assert!(late.progress(100.0, "done").await.is_err());
    let done = queue.get(task.id).await.unwrap();
    // Submit, claim, two renewals, one progress report for all hundred, complete.
    assert!((5..=6).contains(&done.revision), "{}", done.revision);
}

mod of_operators {
    use qo::{WorkerAction, WorkerRequest};

    use super::*;
    use crate::worker::submit;

    #[derive(Clone, Default)]
    struct Gates {
        started: Gate,
        go: Gate,
    }

    async fn waits(_: Job, context: Context) -> Result<(), TaskError> {
        let gates = context.state::<Gates>().ok_or("no gates")?;
        gates.started.open();
        gates.go.wait_for(1).await;
        Ok(())
    }

    fn worker(queue: &Queue, gates: &Gates) -> Worker {
        Worker::builder(queue.clone())
            .id("w")
            .handle::<Job>(waits)
            .state(gates.clone())
            .concurrency(2)
            .build()
            .unwrap()
    }

    async fn ask(queue: &Queue, action: WorkerAction) {
        let request = WorkerRequest::new(action, queue.now(), None);
        let name = "w".parse().unwrap();
        queue.ask_worker(&name, Some(request)).await.unwrap();
    }

    /// Waits for the end of a task, without letting the clock run: handlers have threads of their own.
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of the queue stands still meanwhile"
    )]
    async fn completed(queue: &Queue, task: &Task) {
        let completed = async {
            while queue.get(task.id).await.unwrap().status != Status::Completed {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("the completion", completed).await;
    }

    /// Lets five seconds pass, in which a worker claims several times.
    async fn five_seconds(clock: &TestClock) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(50));
        }
    }

    #[tokio::test]
    async fn a_quiet_worker_claims_nothing_and_a_stopped_one_ends() {
        let (queue, clock) = memory_queue().unwrap();
        let gates = Gates::default();
        let running = submit(&queue, "first").await;
        let first = worker(&queue, &gates);
        let requests = first.requests();
        let handle = first.spawn();
        soon("the handler", gates.started.wait_for(1)).await;
        ask(&queue, WorkerAction::Quiet).await;
        let quiet = async {
            while requests.current().is_none() {
                tokio::task::yield_now().await;
            }
        };
        while_time_passes(&clock, quiet).await;
        let late = submit(&queue, "second").await;
        five_seconds(&clock).await;
        assert_eq!(gates.started.opened(), 1, "a quiet worker begins nothing");
        assert_eq!(queue.get(running.id).await.unwrap().status, Status::Running);

        ask(&queue, WorkerAction::Stop).await;
        let stop = while_time_passes(&clock, requests.stop()).await;
        assert_eq!(stop.action, WorkerAction::Stop);
        gates.go.open();
        completed(&queue, &running).await;
        let gone = async {
            while !queue.workers().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        while_time_passes(&clock, gone).await;
        // It has stopped by itself. Stopping it now changes nothing.
        let report = while_time_passes(&clock, handle.stop()).await.unwrap();
        assert_eq!((report.completed, report.abandoned), (1, 0));
        assert_eq!(queue.get(late.id).await.unwrap().status, Status::Pending);
    }

    #[tokio::test]
    async fn a_worker_that_starts_under_the_same_name_is_not_asked() {
        let (queue, clock) = memory_queue().unwrap();
        let gates = Gates::default();
        gates.go.open();
        let mut record = qo::WorkerInfo::new("w".parse().unwrap(), queue.now().minus_millis(9));
        record.slots = 1;
        queue.heartbeat(&record).await.unwrap();
        ask(&queue, WorkerAction::Stop).await;
        let task = submit(&queue, "first").await;
        let second = worker(&queue, &gates);
        let requests = second.requests();
        let handle = second.spawn();
        completed(&queue, &task).await;
        assert_eq!(requests.current(), None);
        let report = while_time_passes(&clock, handle.stop()).await.unwrap();
        assert_eq!(report.completed, 1);
    }
}
