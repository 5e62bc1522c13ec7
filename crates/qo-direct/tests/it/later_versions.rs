//! Records of a later version of qo, in a bucket that versions share.

use std::time::Duration;

use qo_core::TaskId;
use qo_core::keys::Key;
use qo_core::task::READER;
use qo_direct::{DirectConfig, DirectEngine, SweepNext};
use qo_engine::api::{SubmitRequest, TaskFilter, TaskQuery};
use qo_engine::{Engine, EngineError};
use qo_fixtures::Bucket;
use qo_store::wrap::Operation;

use crate::bucket::Engines as _;
use crate::maintenance::{claim_all, request};

/// Rewrites a task as a later version would.
async fn rewrite(bucket: &Bucket, id: TaskId, change: impl FnOnce(&mut serde_json::Value)) {
    let key = Key::Task(id).to_string();
    let mut record: serde_json::Value = serde_json::from_slice(&bucket.get(&key).await).unwrap();
    change(&mut record);
    bucket.put(&key, &record.to_string()).await;
}

async fn sweep(engine: &DirectEngine) {
    while engine.sweep_step().await.unwrap().next == SweepNext::Continue {}
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn records_of_a_later_version_are_left_alone() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let mut ids = Vec::new();
    for is_running in [false, true, false, true] {
        let id = engine.submit(request()).await.unwrap().task.id;
        if is_running {
            assert_eq!(claim_all(&engine).await.last().unwrap().id, id);
        }
        ids.push(id);
    }
    engine.close().await;
    for id in &ids[..2] {
        rewrite(&bucket, *id, |record| {
            record["status"] = "hibernating".into();
        })
        .await;
    }
    for id in &ids[2..] {
        rewrite(&bucket, *id, |record| {
            record["min_reader"] = (READER + 1).into();
            record["status"] = serde_json::json!({"phase": 7});
        })
        .await;
    }
    let before = [
        bucket.keys("tasks").await,
        bucket.keys("ready").await,
        bucket.keys("leases").await,
    ];
    let bodies: Vec<Vec<u8>> = {
        let mut bodies = Vec::new();
        for key in &before[0] {
            bodies.push(bucket.get(key).await);
        }
        bodies
    };
    // Long enough for every lease, for the sweeper's grace, and for its pass over everything.
    let old = bucket.engine();
    for _ in 0..3 {
        bucket.runtime.pass_seconds(60 * 60).await;
        assert_eq!(claim_all(&old).await, []);
        old.check_leases().await.unwrap();
        sweep(&old).await;
    }
    let after = [
        bucket.keys("tasks").await,
        bucket.keys("ready").await,
        bucket.keys("leases").await,
    ];
    assert_eq!(after, before);
    assert_eq!(bucket.keys("quarantine").await, Vec::<String>::new());
    for (key, body) in before[0].iter().zip(bodies) {
        assert_eq!(bucket.get(key).await, body, "{key}");
    }
    let page = old
        .list(TaskQuery::first(&TaskFilter::default(), 100))
        .await
        .unwrap();
    assert_eq!(page.tasks, []);
    for id in ids {
        for refused in [
            old.get(id).await.map(drop),
            old.cancel(id, None).await.map(drop),
            old.purge(id).await,
            old.submit(SubmitRequest {
                id: Some(id),
                ..request()
            })
            .await
            .map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, EngineError::Unreadable { .. }), "{error}");
            assert!(error.to_string().contains("newer version"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_page_of_records_of_a_later_version_hides_no_other_task() {
    let bucket = Bucket::new();
    let mut config = DirectConfig::default();
    config.ready_page_size = 5;
    let client = bucket.client_on(bucket.counted());
    let engine = DirectEngine::new(client, None, bucket.runtime.clone(), config);
    for _ in 0..12 {
        let urgent = SubmitRequest {
            priority: 0,
            ..request()
        };
        let id = engine.submit(urgent).await.unwrap().task.id;
        rewrite(&bucket, id, |record| {
            record["status"] = "hibernating".into();
        })
        .await;
    }
    let last = engine.submit(request()).await.unwrap().task.id;
    // A claim reads a bounded number of entries, so it takes a few of them to get past the others.
    let mut claimed = Vec::new();
    for _ in 0..10 {
        claimed.extend(claim_all(&engine).await);
    }
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    assert_eq!(claimed[0].id, last);
    let reads = || bucket.counts().total(Operation::Get).requests;
    let before = reads();
    assert_eq!(claim_all(&engine).await, []);
    let more = reads() - before;
    assert!(more < 5, "{more} reads");
    // They are tried again later, in case this worker could not read them for another reason.
    bucket
        .runtime
        .pass_seconds(Duration::from_mins(11).as_secs())
        .await;
    assert_eq!(claim_all(&engine).await, []);
}
