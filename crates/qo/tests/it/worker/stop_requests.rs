//! Handlers that are told to stop: by a cancel, by their deadline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::testing::{TestClock, memory_queue};
use qo::{Context, Queue, Status, StopReason, Task, TaskError, TaskInput, Worker};

use super::{Gate, Job, job, soon, while_time_passes};

/// What the handler has seen, and when it was dropped.
#[derive(Clone, Default)]
struct Seen {
    started: Gate,
    reason: Arc<Mutex<Option<StopReason>>>,
    dropped: Gate,
}

/// Says when it is dropped.
struct Flag(Gate);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.open();
    }
}

async fn endless(job: Job, context: Context) -> Result<String, TaskError> {
    let seen = context.state::<Seen>().ok_or("no state")?;
    let _flag = Flag(seen.dropped.clone());
    seen.started.open();
    context.cancellation().cancelled().await;
    *seen.reason.lock().unwrap() = context.stop_reason();
    match job.name.as_str() {
        "obedient" => Err(TaskError::Cancelled),
        "done anyway" => Ok("just in time".to_owned()),
        "spoilt" => Err(TaskError::permanent("spoilt")),
        _ => std::future::pending().await,
    }
}

/// Runs one task whose handler only ends when it is told to; `meanwhile` runs when it has started.
async fn run(
    name: &str,
    meanwhile: impl AsyncFnOnce(&Queue, &Task),
) -> (Task, Seen, TestClock, Queue) {
    let (queue, clock) = memory_queue().unwrap();
    let task = queue.task(Job::TYPE, &job(name)).unwrap();
    let task = task.timeout(Duration::from_mins(1)).submit().await.unwrap();
    let seen = Seen::default();
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(endless)
        .state(seen.clone())
        .build()
        .unwrap();
    let acting = async {
        seen.started.wait_for(1).await;
        meanwhile(&queue, &task.task).await;
    };
    let both = async {
        let (report, ()) = tokio::join!(worker.drain(), acting);
        assert_eq!(report.unwrap().attempts(), 1);
    };
    soon("the drain", while_time_passes(&clock, both)).await;
    assert_eq!(seen.dropped.opened(), 1, "nothing of the handler is left");
    let ended = queue.get(task.task.id).await.unwrap();
    (ended, seen, clock, queue)
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
        let (task, seen, clock, _) = run(name, cancel).await;
        assert_eq!(task.status, Status::Cancelled, "{name}");
        assert_eq!(*seen.reason.lock().unwrap(), Some(StopReason::Cancelled));
        let took = clock.now().since(task.started_at.unwrap());
        assert!(took < Duration::from_secs(30), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn what_is_done_or_spoilt_keeps_its_outcome_in_spite_of_a_cancel() {
    let (task, _, _, queue) = run("done anyway", cancel).await;
    assert_eq!(task.status, Status::Completed);
    let output = queue.output(&task).await.unwrap().unwrap();
    assert_eq!(output.as_str(), "\"just in time\"");
    let (task, ..) = run("spoilt", cancel).await;
    assert_eq!(task.status, Status::Failed);
}

#[tokio::test]
async fn a_deadline_ends_the_attempt() {
    for name in ["obedient", "stubborn"] {
        let (task, seen, _, _) = run(name, wait).await;
        assert_eq!(
            (task.status, task.retry_count),
            (Status::Pending, 1),
            "{name}"
        );
        assert_eq!(*seen.reason.lock().unwrap(), Some(StopReason::TimedOut));
        assert_eq!(task.last_error.as_deref(), Some("timed out after 60 s"));
        let ended = task.events.last().unwrap().at;
        let took = ended.since(task.events[1].at);
        let bounds = if name == "obedient" { 60..62 } else { 65..67 };
        assert!(bounds.contains(&took.as_secs()), "{name}: {took:?}");
    }
}

#[tokio::test]
async fn what_is_done_a_moment_late_counts() {
    let (task, ..) = run("done anyway", wait).await;
    assert_eq!(task.status, Status::Completed);
}

#[tokio::test]
async fn a_handler_can_renew_and_report_and_hears_when_it_is_too_late() {
    type Kept = Arc<Mutex<Option<Context>>>;
    async fn reports(_: Job, context: Context) -> Result<(), TaskError> {
        let keep = context.state::<Kept>().ok_or("no state")?;
        context.renew().await?;
        assert!(context.progress(101.0, "too much").await.is_err());
        assert!(context.progress(f64::NAN, "").await.is_err());
        for percent in 0..=100 {
            context.progress(f64::from(percent), "on it").await?;
        }
        *keep.lock().unwrap() = Some(context.clone());
        context.renew().await?;
        Ok(())
    }
    let (queue, _clock) = memory_queue().unwrap();
    let task = super::submit(&queue, "x").await;
    let kept = Kept::default();
    let worker = Worker::builder(queue.clone()).handle::<Job>(reports);
    let worker = worker.state(Arc::clone(&kept)).build().unwrap();
    assert_eq!(worker.drain().await.unwrap().completed, 1);
    let late = kept.lock().unwrap().take().unwrap();
    let error = late.renew().await.unwrap_err();
    assert_eq!(error.kind(), qo::ErrorKind::LeaseLost, "{error}");
    assert!(late.progress(100.0, "done").await.is_err());
    let done = queue.get(task.id).await.unwrap();
    // Submit, claim, two renewals, one progress report for all hundred, complete.
    assert!((5..=6).contains(&done.revision), "{}", done.revision);
}
