//! The index of finished tasks by time, after an earlier version has written.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_broker::BrokerEngine;
use qo_core::{Json, Status, TaskId};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, TaskFilter, TaskOrder, TaskQuery};
use qo_store::runtime::TokioRuntime;
use slatedb::Db;

use super::engines::Journal;

/// Where the broker keeps its database.
const DB_PATH: &str = "slate";

async fn engine(objects: &Arc<dyn ObjectStore>) -> BrokerEngine {
    let runtime = TokioRuntime::shared();
    let engine = Journal::Slate.open(Arc::clone(objects), &runtime);
    engine.await.unwrap()
}

/// Completes this many tasks, and returns them, the newest first.
async fn complete(engine: &BrokerEngine, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let request = SubmitRequest::new("work".parse().unwrap(), Json::null());
        ids.insert(0, engine.submit(request).await.unwrap().task.id);
        let claim = ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
        let task = engine.claim(&claim).await.unwrap().pop().unwrap();
        let lease = task.lease_id.unwrap();
        engine.complete(task.id, lease, None).await.unwrap();
        let runtime = TokioRuntime::shared();
        runtime.sleep(std::time::Duration::from_millis(3)).await;
    }
    ids
}

async fn newest(engine: &BrokerEngine) -> Vec<TaskId> {
    let filter = TaskFilter {
        statuses: vec![Status::Completed],
        order: TaskOrder::Newest,
        ..TaskFilter::default()
    };
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = engine
            .list(TaskQuery::first(&filter, 4).at(cursor.as_deref()))
            .await
            .unwrap();
        ids.extend(page.tasks.iter().map(|task| task.id));
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

/// Deletes the rows that an earlier version does not write, of the newest tasks only.
async fn forget(objects: &Arc<dyn ObjectStore>, count: usize) {
    let db = Db::builder(DB_PATH, Arc::clone(objects))
        .build()
        .await
        .unwrap();
    let mut rows = db.scan_prefix(b"t", ..).await.unwrap();
    let mut keys = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        keys.push(row.key);
    }
    assert!(keys.len() >= count);
    for key in keys.into_iter().take(count) {
        db.delete(key).await.unwrap();
    }
    let mut rows = db.scan_prefix(b"x", ..).await.unwrap();
    let mut indexed = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        indexed.push((row.key, row.value));
    }
    assert!(!indexed.is_empty());
    // An earlier version leaves the numbers of indexed tasks as they were.
    for (key, value) in indexed {
        let number = u64::from_be_bytes(value.as_ref().try_into().unwrap());
        let before = number.saturating_sub(count as u64);
        db.put(key, before.to_be_bytes()).await.unwrap();
    }
    db.flush().await.unwrap();
    db.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_an_earlier_version_finished_are_indexed_at_the_next_start() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let first = engine(&objects).await;
    let mut expected = complete(&first, 6).await;
    assert_eq!(newest(&first).await, expected);
    first.close().await;
    forget(&objects, 3).await;

    let second = engine(&objects).await;
    assert_eq!(newest(&second).await, expected);
    // The index goes on from there.
    for id in complete(&second, 2).await.into_iter().rev() {
        expected.insert(0, id);
    }
    second.replay(expected[4]).await.unwrap();
    second.archive(expected[5]).await.unwrap();
    second.purge(expected[6]).await.unwrap();
    expected.drain(4..7);
    assert_eq!(newest(&second).await, expected);
    second.close().await;
    let third = engine(&objects).await;
    assert_eq!(newest(&third).await, expected);
    third.close().await;
}
