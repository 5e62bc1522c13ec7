//! Finished tasks leave nothing in the indexes, and stale entries are removed when they are found.

use std::time::Duration;

use qo::{ClaimRequest, Failure, FailureKind, Queue, Status, TaskFilter};
use qo_core::keys::{IndexEntry, Key};

use qo_fixtures::until;

use crate::test_queue::{TestQueue, claim_one, claim_request};

/// All keys below some prefixes.
async fn keys(queue: &Queue, prefixes: &[&str]) -> Vec<String> {
    let client = queue.direct_engine().unwrap().client();
    let mut keys = Vec::new();
    for prefix in prefixes {
        let page = client.page(prefix, None, 1_000).await.unwrap();
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
    }
    keys
}

const INDEXES: [&str; 3] = ["ready", "later", "leases"];

async fn scenario(test_queue: TestQueue) {
    let queue = test_queue.connect().await;
    let submit = async |delay: Option<Duration>| {
        let task = queue.task("job", &"x".repeat(100_000)).unwrap();
        let task = match delay {
            Some(delay) => task.delay(delay),
            None => task,
        };
        task.submit().await.unwrap().task
    };
    // One task for each outcome.
    submit(None).await;
    let (task, lease) = claim_one(&queue, "worker-1", "job").await;
    assert_eq!(keys(&queue, &["leases"]).await.len(), 1);
    queue.renew(task.id, lease, Some(200_000)).await.unwrap();
    queue.complete(task.id, lease, None).await.unwrap();

    submit(None).await;
    let (task, lease) = claim_one(&queue, "worker-1", "job").await;
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "no".into(),
    };
    queue.fail(task.id, lease, failure).await.unwrap();

    submit(None).await;
    let (task, lease) = claim_one(&queue, "worker-1", "job").await;
    queue.release(task.id, lease).await.unwrap();
    let (task, lease) = claim_one(&queue, "worker-1", "job").await;
    queue.snooze(task.id, lease, 300).await.unwrap();
    let (task, lease) = claim_one(&queue, "worker-1", "job").await;
    queue.complete(task.id, lease, None).await.unwrap();

    let delayed = submit(Some(Duration::from_hours(1))).await;
    // The entry of the snoozed task is deleted in the background.
    until("only the delayed task is scheduled", async || {
        (keys(&queue, &["later"]).await.len() == 1).then_some(())
    })
    .await;
    queue.cancel(delayed.id, None).await.unwrap();
    let pending = submit(None).await;
    queue.cancel(pending.id, None).await.unwrap();

    queue.close().await;
    assert_eq!(keys(&queue, &INDEXES).await, Vec::<String>::new());

    // A process died after it completed a task and before it deleted the old entry.
    let stale = Key::Ready(IndexEntry::of(&task)).to_string();
    let client = queue.direct_engine().unwrap().client();
    client.put(&stale, bytes::Bytes::new()).await.unwrap();
    let other = test_queue.connect().await;
    let impatient = ClaimRequest {
        wait_ms: 0,
        ..claim_request("worker-2", "job")
    };
    assert_eq!(other.claim(&impatient).await.unwrap(), []);
    until("the stale entry is gone", async || {
        keys(&queue, &INDEXES).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(queue.get(task.id).await.unwrap().status, Status::Completed);

    // Purging leaves no task, no payload and no key.
    let report = queue.purge_all(TaskFilter::default(), |_| {}).await;
    assert_eq!((report.matched, report.done), (5, 5), "{report:?}");
    let rest = keys(&queue, &["tasks", "data", "keys"]).await;
    assert_eq!(rest, Vec::<String>::new());
}

on_every_store!(scenario);
