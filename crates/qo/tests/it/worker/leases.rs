//! Leases: kept while a handler blocks its thread, and lost when they cannot be renewed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::{Context, MaintenanceConfig, Status, StopReason, TaskError, Worker};
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule};

use super::{Gate, Job, SharedBucket, soon, submit};
use crate::test_queue::WAIT_MAX;

/// Checks the leases all the time.
fn watchful() -> MaintenanceConfig {
    let mut config = MaintenanceConfig::default();
    config.check_interval = Duration::from_millis(200);
    config
}

/// Two handlers block both handler threads for longer than their leases. The program has one thread.
#[tokio::test(flavor = "current_thread")]
async fn handlers_that_block_their_threads_keep_their_leases() {
    async fn blocks(_: Job, context: Context) -> Result<(), TaskError> {
        let done = context.state::<Gate>().ok_or("no gate")?;
        std::thread::sleep(Duration::from_secs(6));
        done.open();
        Ok(())
    }
    let queue = SharedBucket::new().queue();
    let tasks = [submit(&queue, "a").await, submit(&queue, "b").await];
    let done = Gate::default();
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(blocks)
        .state(done.clone())
        .concurrency(2)
        .lease(Duration::from_secs(2))
        .maintenance(watchful())
        .build()
        .unwrap()
        .spawn();
    soon("both handlers", done.wait_for(2)).await;
    let report = worker.stop().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (2, 2));
    for task in tasks {
        let task = queue.get(task.id).await.unwrap();
        assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    }
}

/// What the first worker's handler observed.
#[derive(Clone, Default)]
struct Seen {
    started: Gate,
    taken_over: Gate,
    reason: Arc<Mutex<Option<StopReason>>>,
    too_late: Arc<Mutex<Option<bool>>>,
}

async fn slow(_: Job, context: Context) -> Result<String, TaskError> {
    let seen = context.state::<Seen>().ok_or("no state")?;
    seen.started.open();
    context.cancellation().cancelled().await;
    *seen.reason.lock().unwrap() = context.stop_reason();
    // The handler ignores the stop request, and reports success long after another worker has completed the task.
    seen.taken_over.wait_for(1).await;
    *seen.too_late.lock().unwrap() = Some(context.progress(50.0, "").await.is_err());
    Ok("zombie".to_owned())
}

async fn quick(_: Job, context: Context) -> Result<String, TaskError> {
    Ok(format!("done by {}", context.worker()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_renew_loses_its_task_to_another() {
    let bucket = SharedBucket::new();
    let (broken, faults) = bucket.breakable();
    let good = bucket.queue();
    let task = submit(&good, "x").await;
    let seen = Seen::default();
    let first = Worker::builder(broken)
        .id("first")
        .handle::<Job>(slow)
        .state(seen.clone())
        .lease(Duration::from_millis(1_500))
        .grace(WAIT_MAX)
        .no_maintenance()
        .build()
        .unwrap()
        .spawn();
    soon("the handler", seen.started.wait_for(1)).await;
    // From now on, the first worker's task writes are lost.
    let lost = FaultRule::new(FaultKind::LostRequest, 1.0);
    faults.set_plan(FaultPlan::none().with(lost.under(["tasks/", "leases/"])));
    let second = Worker::builder(good.clone())
        .id("second")
        .handle::<Job>(quick)
        .maintenance(watchful())
        .build()
        .unwrap()
        .spawn();
    let done = good.wait(task.id, WAIT_MAX).await.unwrap();
    assert_eq!((done.status, done.attempt), (Status::Completed, 2));
    faults.set_plan(FaultPlan::none());
    seen.taken_over.open();
    let report = soon("the first worker", first.stop()).await.unwrap();
    assert_eq!((report.lost, report.completed), (1, 0));
    assert_eq!(*seen.reason.lock().unwrap(), Some(StopReason::LeaseLost));
    assert_eq!(*seen.too_late.lock().unwrap(), Some(true));
    assert_eq!(second.stop().await.unwrap().completed, 1);
    let after = good.get(task.id).await.unwrap();
    assert_eq!(after, done, "the zombie has changed nothing");
    let output = good.output(&after).await.unwrap().unwrap();
    assert_eq!(output.as_str(), "\"done by second\"");
}
