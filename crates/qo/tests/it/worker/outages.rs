//! A store that is unavailable for a while.

use std::time::Duration;

use qo::store::wrap::{FaultKind, FaultPlan, FaultRule, Operation};
use qo::{Context, Status, TaskError, Worker};

use super::{Gate, Job, SharedBucket, greet, soon, submit};
use crate::test_store::TIMEOUT;

#[derive(Clone, Default)]
struct Probe {
    started: Gate,
    go: Gate,
}

async fn waits(_: Job, context: Context) -> Result<String, TaskError> {
    let probe = context.state::<Probe>().ok_or("no probe")?;
    probe.started.open();
    probe.go.wait_for(1).await;
    Ok("kept".to_owned())
}

async fn completes_despite(kind: FaultKind) {
    let bucket = SharedBucket::new();
    let (queue, faults) = bucket.with_faults();
    let task = submit(&queue, "x").await;
    let probe = Probe::default();
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(waits)
        .state(probe.clone())
        .build()
        .unwrap()
        .spawn();
    soon("the handler", probe.started.wait_for(1)).await;
    let swaps = FaultRule::new(kind, 1.0).on([Operation::Swap, Operation::Get]);
    faults.set_plan(FaultPlan::none().with(swaps.under(["tasks/"])));
    probe.go.open();
    // Long enough that the client gives up and the worker retries.
    soon("a few tries", async {
        while faults.injected().get(&kind).copied().unwrap_or(0) < 8 {
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>())
                .await
                .ok();
        }
    })
    .await;
    faults.set_plan(FaultPlan::none());
    let done = queue.wait(task.id, TIMEOUT).await.unwrap();
    assert_eq!(
        (done.status, done.attempt),
        (Status::Completed, 1),
        "{kind}"
    );
    let report = worker.stop().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (1, 1), "{kind}");
}

#[tokio::test]
async fn an_outcome_is_stored_when_the_store_is_back() {
    completes_despite(FaultKind::LostRequest).await;
}

#[tokio::test]
async fn an_outcome_with_a_lost_response_is_recognised() {
    completes_despite(FaultKind::LostResponse).await;
}

#[tokio::test]
async fn claims_resume_when_the_store_is_back() {
    let bucket = SharedBucket::new();
    let (queue, faults) = bucket.with_faults();
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
    let done = client.wait(task.id, TIMEOUT).await.unwrap();
    assert_eq!((done.status, done.attempt), (Status::Completed, 1));
    worker.stop().await.unwrap();
}
