//! A store that cannot be reached for a while.

use std::time::Duration;

use qo::{Context, Status, TaskError, Worker};
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, Operation};

use super::{Gate, Job, SharedBucket, greet, soon, submit};
use crate::test_queue::WAIT_MAX;

#[derive(Clone, Default)]
struct Stage {
    started: Gate,
    go: Gate,
}

async fn waits(_: Job, context: Context) -> Result<String, TaskError> {
    let stage = context.state::<Stage>().ok_or("no stage")?;
    stage.started.open();
    stage.go.wait_for(1).await;
    Ok("kept".to_owned())
}

async fn completes_in_spite_of(kind: FaultKind) {
    let bucket = SharedBucket::new();
    let (queue, faults) = bucket.breakable();
    let task = submit(&queue, "x").await;
    let stage = Stage::default();
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(waits)
        .state(stage.clone())
        .build()
        .unwrap()
        .spawn();
    soon("the handler", stage.started.wait_for(1)).await;
    let swaps = FaultRule::new(kind, 1.0).on([Operation::Swap, Operation::Get]);
    faults.set_plan(FaultPlan::none().with(swaps.under(["tasks/"])));
    stage.go.open();
    // Long enough for the client to give up, so that the worker has to try again.
    soon("a few tries", async {
        while faults.injected().get(&kind).copied().unwrap_or(0) < 8 {
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>())
                .await
                .ok();
        }
    })
    .await;
    faults.set_plan(FaultPlan::none());
    let done = queue.wait(task.id, WAIT_MAX).await.unwrap();
    assert_eq!(
        (done.status, done.attempt),
        (Status::Completed, 1),
        "{kind}"
    );
    let report = worker.stop().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (1, 1), "{kind}");
}

#[tokio::test]
async fn an_outcome_is_written_when_the_store_is_back() {
    completes_in_spite_of(FaultKind::LostRequest).await;
}

#[tokio::test]
async fn an_outcome_with_a_lost_response_is_recognised() {
    completes_in_spite_of(FaultKind::LostResponse).await;
}

#[tokio::test]
async fn claims_resume_when_the_store_is_back() {
    let bucket = SharedBucket::new();
    let (queue, faults) = bucket.breakable();
    faults.set_plan(FaultPlan::always(FaultKind::LostRequest));
    let worker = Worker::builder(queue).handle::<Job>(greet).build();
    let worker = worker.unwrap().spawn();
    soon("a few failures", async {
        while faults.injected().values().sum::<u64>() < 10 {
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>())
                .await
                .ok();
        }
    })
    .await;
    faults.set_plan(FaultPlan::none());
    let client = bucket.queue();
    let task = submit(&client, "x").await;
    let done = client.wait(task.id, WAIT_MAX).await.unwrap();
    assert_eq!((done.status, done.attempt), (Status::Completed, 1));
    worker.stop().await.unwrap();
}
