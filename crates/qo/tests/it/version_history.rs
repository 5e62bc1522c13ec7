//! Every stored version of a task and its changes, if the store keeps versions; its events on every store.

use qo::{EngineError, Error, FieldChange, Json, Queue, Status, TaskFilter, TaskId, diff};
use qo_store::admin::Versioning;

use crate::test_queue::{TestQueue, claim_one};

async fn complete_one(queue: &Queue) -> TaskId {
    queue.task("job", &1).unwrap().submit().await.unwrap();
    let (task, lease) = claim_one(queue, "worker-1", "job").await;
    let output = Some(Json::parse("[1,2]").unwrap());
    queue.complete(task.id, lease, output).await.unwrap();
    let events = queue.history(task.id).await.unwrap();
    let steps: Vec<_> = events.iter().map(|event| event.to).collect();
    assert_eq!(steps, [Status::Pending, Status::Running, Status::Completed]);
    task.id
}

async fn shows_all_versions(queue: Queue) {
    let id = complete_one(&queue).await;
    let steps = queue.version_steps(id, 100).await.unwrap();
    let statuses: Vec<_> = steps
        .iter()
        .map(|step| step.task.as_ref().unwrap().status)
        .collect();
    assert_eq!(
        statuses,
        [Status::Pending, Status::Running, Status::Completed]
    );
    assert!(steps[0].changes.is_empty(), "nothing is before the first");

    let json = |text: &str| Some(Json::parse(text).unwrap());
    let change = |step: usize, field: &str| -> FieldChange {
        let mut changes = steps[step].changes.iter();
        let found = changes.find(|change| change.field == field);
        found
            .unwrap_or_else(|| panic!("{field} did not change"))
            .clone()
    };
    let status = change(1, "status");
    assert_eq!(
        (status.before, status.after),
        (json("\"pending\""), json("\"running\""))
    );
    let attempt = change(1, "attempt");
    assert_eq!((attempt.before, attempt.after), (json("0"), json("1")));
    let worker = change(1, "worker_id");
    assert_eq!((worker.before, worker.after), (None, json("\"worker-1\"")));
    let output = change(2, "output");
    assert_eq!((output.before, output.after), (None, json("[1,2]")));
    assert_eq!(change(2, "lease_id").after, None);
    assert!(
        steps[2]
            .changes
            .iter()
            .all(|change| change.field != "input"),
        "what stays is not listed"
    );

    let newest = queue.versions(id, 1).await.unwrap();
    assert_eq!(newest.len(), 1);
    let (last, now) = (
        newest[0].task.as_ref().unwrap(),
        queue.get(id).await.unwrap(),
    );
    assert_eq!(diff(last, &now).unwrap(), []);
}

/// A purge leaves no version of the record and its payloads. A record that frees the idempotency key stays, because a late delete could
/// take the key from its next task.
async fn purges_all_versions(queue: Queue, renewals: usize) {
    let task = queue.task("job", &"x".repeat(100_000)).unwrap();
    let task = task.idempotency_key("once").submit().await.unwrap().task;
    let (_, lease) = claim_one(&queue, "worker-1", "job").await;
    for _ in 0..renewals {
        queue.renew(task.id, lease, None).await.unwrap();
    }
    queue.complete(task.id, lease, None).await.unwrap();
    let client = queue.direct_engine().unwrap().client();
    let mut keys = Vec::new();
    for prefix in ["tasks", "data", "keys"] {
        let page = client.page(prefix, None, 10).await.unwrap();
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
    }
    assert_eq!(keys.len(), 3, "{keys:?}");
    queue.purge(task.id).await.unwrap();
    let admin = queue.store().unwrap().admin.clone().unwrap();
    for key in keys {
        let left = admin.list_versions(&key, 10).await.unwrap();
        let kept = usize::from(key.starts_with("keys/"));
        assert_eq!(left.versions.len(), kept, "{key}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_memory() {
    let queue = TestQueue::memory(module_path!()).connect().await;
    let id = complete_one(&queue).await;
    let error = queue.versions(id, 10).await.unwrap_err();
    assert_eq!(error, Error::Engine(EngineError::NotVersioned));
    assert!(error.to_string().contains("versioning"), "{error}");
    assert_eq!(queue.engine().get(id).await.unwrap().id, id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_sqlite() {
    let test_queue = TestQueue::sqlite();
    let queue = test_queue.connect().await;
    let admin = queue.store().unwrap().admin.clone().unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    shows_all_versions(queue).await;
    let other = test_queue.connect().await;
    // More versions than one list returns.
    let report = other.purge_all(TaskFilter::default(), |_| {}).await;
    assert_eq!(report.done, 1);
    purges_all_versions(other, 1_100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_seaweedfs() {
    shows_all_versions(TestQueue::seaweedfs_with_versions().connect().await).await;
    purges_all_versions(TestQueue::seaweedfs_with_versions().connect().await, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_seaweedfs_without_versions() {
    let queue = TestQueue::seaweedfs().connect().await;
    let id = complete_one(&queue).await;
    let error = queue.versions(id, 10).await.unwrap_err();
    assert_eq!(error, Error::Engine(EngineError::NotVersioned));
}
