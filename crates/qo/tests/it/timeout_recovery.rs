//! A worker dies during an attempt. The monitor expires the lease, and another worker runs the task.

use qo::{ClaimRequest, ErrorKind, Failure, FailureKind, Queue, RetryPolicy, Status, Task, TaskId};

use qo_fixtures::until;

use crate::test_queue::{TestQueue, claim_one, claim_request};

/// Claims with a lease that is never renewed.
async fn claim_and_die(test_queue: &TestQueue) -> Task {
    let claim_request = ClaimRequest {
        lease_ms: Some(100),
        ..claim_request("doomed", "long")
    };
    let mut claimed = test_queue
        .connect()
        .await
        .claim(&claim_request)
        .await
        .unwrap();
    claimed.pop().unwrap()
}

/// Runs the monitor until the attempt has ended.
async fn recovered(monitor: &Queue, id: TaskId) -> Task {
    until("the monitor ends the attempt", async || {
        let engine = monitor.direct_engine().unwrap();
        engine.check_leases().await.unwrap();
        let task = monitor.get(id).await.unwrap();
        (task.status != Status::Running).then_some(task)
    })
    .await
}

async fn submit(queue: &Queue, retries: u32) -> TaskId {
    let policy = RetryPolicy {
        initial_interval_ms: 1,
        max_interval_ms: 1,
        ..RetryPolicy::default()
    };
    let task = queue.task("long", &"input").unwrap();
    let task = task.retries(retries).retry_policy(policy);
    task.submit().await.unwrap().task.id
}

async fn scenario(test_queue: TestQueue) {
    let queue = test_queue.connect().await;
    let monitor = test_queue.connect().await;
    let id = submit(&queue, 1).await;
    let dead = claim_and_die(&test_queue).await;
    assert_eq!(dead.id, id);
    let returned = recovered(&monitor, id).await;
    assert_eq!(
        (returned.status, returned.retry_count),
        (Status::Pending, 1)
    );
    assert!(returned.last_error.unwrap().contains("lease"));

    let (task, lease) = claim_one(&queue, "alive", "long").await;
    assert_eq!((task.id, task.attempt), (id, 2));

    // The worker was slow, not dead. Its operations have no effect.
    let zombie = test_queue.connect().await;
    let lost = dead.lease_id.unwrap();
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "zombie".into(),
    };
    for answer in [
        zombie.complete(id, lost, None).await,
        zombie.fail(id, lost, failure).await,
        zombie.renew(id, lost, None).await,
        zombie.release(id, lost).await,
    ] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::LeaseLost);
    }
    assert_eq!(queue.get(id).await.unwrap(), task);
    queue.complete(id, lease, None).await.unwrap();

    // A task whose workers die more often than it has retries fails.
    let poison = submit(&queue, 0).await;
    assert_eq!(claim_and_die(&test_queue).await.id, poison);
    let ended = recovered(&monitor, poison).await;
    assert_eq!((ended.status, ended.attempt), (Status::Failed, 1));
}

on_every_store!(scenario);
