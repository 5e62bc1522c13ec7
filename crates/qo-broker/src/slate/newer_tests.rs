//! A broker on a database with live tasks of a later version.

use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_core::task::{READER, decode_compact, encode};
use qo_core::{Json, TaskId};
use qo_engine::api::{ClaimRequest, IdempotencyRequest, SubmitRequest, TaskFilter, TaskQuery};
use qo_engine::conformance::refusals;
use qo_engine::{Engine, EngineError};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;
use slatedb::Db;

use super::error::DB_PATH;
use crate::rows::keys::{self, ENDED, LIVE};
use crate::{BrokerEngine, SlateConfig};

async fn engine(objects: &Arc<dyn ObjectStore>) -> BrokerEngine {
    BrokerEngine::slate(
        Arc::clone(objects),
        Arc::new(StoreClock::new()),
        TokioRuntime::shared(),
        ClientConfig::default(),
        SlateConfig::default(),
    )
    .await
    .unwrap()
}

fn work() -> SubmitRequest {
    SubmitRequest::new("work".parse().unwrap(), Json::null())
}

fn keyed(key: &str) -> SubmitRequest {
    SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: key.parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Global,
            window_ms: None,
        }),
        ..work()
    }
}

/// Rewrites the rows of live tasks as later versions would: as JSON with a word that this version does not know, as JSON for a later
/// reader, in the compact form with another flag, and in a later form.
fn rewritten(record: &[u8], number: usize) -> Bytes {
    let task = decode_compact(record).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&encode(&task).unwrap()).unwrap();
    match number {
        0 => json["status"] = "hibernating".into(),
        1 => json["min_reader"] = (READER + 1).into(),
        2 => {
            // The flags follow the form. Their highest bit is unknown.
            let flags_len = 1 + record[1..].iter().take_while(|byte| **byte >= 0x80).count();
            let mut later = vec![record[0], 0x80, 0x80, 0x80, 0x80, 0x08];
            later.extend_from_slice(&record[1 + flags_len..]);
            return later.into();
        }
        _ => {
            let mut later = vec![2];
            later.extend_from_slice(task.id.as_uuid().as_bytes());
            later.extend_from_slice(b"whatever a later version needs");
            return later.into();
        }
    }
    json.to_string().into_bytes().into()
}

async fn live_rows(db: &Db) -> Vec<(Bytes, Bytes)> {
    let mut rows = db.scan_prefix([LIVE], ..).await.unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        found.push((row.key, row.value));
    }
    found
}

async fn database(objects: &Arc<dyn ObjectStore>) -> Db {
    Db::builder(DB_PATH, Arc::clone(objects))
        .build()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_tasks_of_a_later_version_are_left_alone_and_the_others_are_served() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let first = engine(&objects).await;
    let mut newer: Vec<TaskId> = Vec::new();
    for number in 0..4 {
        let request = keyed(&format!("order-{number}"));
        newer.push(first.submit(request).await.unwrap().task.id);
    }
    let readable = first.submit(work()).await.unwrap().task.id;
    first.close().await;

    let db = database(&objects).await;
    let mut expected = Vec::new();
    for (number, (key, value)) in live_rows(&db).await.into_iter().take(4).enumerate() {
        let later = rewritten(&value, number);
        assert!(keys::sequence_of(&key).is_some());
        db.put(&key, &later).await.unwrap();
        expected.push((key, later));
    }
    db.flush().await.unwrap();
    db.close().await.unwrap();

    let old = engine(&objects).await;
    let page = old
        .list(TaskQuery::first(&TaskFilter::default(), 10))
        .await
        .unwrap();
    assert_eq!(page.tasks.len(), 1);
    for (number, id) in newer.iter().enumerate() {
        let keyed = keyed(&format!("order-{number}"));
        for error in refusals(&old, *id, work(), keyed).await {
            assert!(matches!(error, EngineError::Unreadable { .. }), "{error}");
            assert!(error.to_string().contains("newer version"), "{error}");
        }
    }
    let mut request = ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
    request.max = 10;
    let claimed = old.claim(&request).await.unwrap();
    let ids: Vec<TaskId> = claimed.iter().map(|task| task.id).collect();
    assert_eq!(ids, [readable]);
    let lease = claimed[0].lease_id.unwrap();
    old.complete(readable, lease, None).await.unwrap();
    let fresh = old.submit(keyed("another")).await.unwrap();
    assert!(!fresh.duplicate);
    old.close().await;

    let db = database(&objects).await;
    let mut left = live_rows(&db).await;
    assert_eq!(left.len(), 5);
    left.truncate(4);
    assert_eq!(left, expected);
    db.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_task_of_a_later_version_refuses_no_other_submit_of_the_same_call() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let first = engine(&objects).await;
    let newer = first.submit(work()).await.unwrap().task.id;
    let readable = first.submit(work()).await.unwrap().task.id;
    for id in [newer, readable] {
        first.cancel(id, None).await.unwrap();
    }
    first.close().await;

    let db = database(&objects).await;
    let key = keys::of_task(ENDED, newer);
    let row = db.get(&key).await.unwrap().unwrap();
    db.put(&key, &rewritten(&row, 3)).await.unwrap();
    db.close().await.unwrap();

    let old = engine(&objects).await;
    let ids = [
        newer,
        readable,
        TaskId::from_random(1),
        TaskId::from_random(2),
    ];
    let requests = ids.map(|id| SubmitRequest {
        id: Some(id),
        ..work()
    });
    let results = old.submit_many(requests.to_vec()).await;
    let duplicates: Vec<Option<bool>> = (results.iter())
        .map(|result| result.as_ref().ok().map(|submitted| submitted.duplicate))
        .collect();
    assert_eq!(duplicates, [None, Some(true), Some(false), Some(false)]);
    let error = results[0].as_ref().unwrap_err();
    assert!(
        matches!(error, EngineError::Unreadable { id, .. } if *id == newer),
        "{error}"
    );
    let error = old.get(newer).await.unwrap_err();
    assert!(matches!(error, EngineError::Unreadable { .. }), "{error}");
    old.close().await;
}
