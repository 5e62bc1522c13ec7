//! The limit of a line, and a line that nobody has repaired yet.

use std::sync::Arc;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{Json, Rejection, TaskId};
use qo_direct::{DirectConfig, DirectEngine, LINE_MAX_TASKS};
use qo_engine::api::SubmitRequest;
use qo_engine::{Engine, EngineError};
use qo_fixtures::Bucket;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, FaultStore, Operation};

use crate::bucket::Engines as _;
use crate::maintenance::{claim, claim_all, complete};

fn ordered(id: Option<TaskId>) -> SubmitRequest {
    SubmitRequest {
        id,
        ordering: Some(OrderingRule {
            key: "k".parse().unwrap(),
            on_failure: OnFailure::Continue,
        }),
        ..SubmitRequest::new("noop".parse().unwrap(), Json::null())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_line_refuses_tasks_and_stores_nothing_of_them() {
    let runtime = TokioRuntime::shared();
    let client = StoreClient::new(
        Arc::new(object_store::memory::InMemory::new()),
        Arc::new(StoreClock::new()),
        Arc::clone(&runtime),
        ClientConfig::default(),
    );
    let engine = DirectEngine::new(client, None, Arc::clone(&runtime), DirectConfig::default());
    let requests = (0..LINE_MAX_TASKS + 2).map(|_| ordered(Some(runtime.new_task_id())));
    let requests: Vec<SubmitRequest> = requests.collect();
    let results = engine.submit_many(requests.clone()).await;
    let full = EngineError::Rejected(Rejection::LineFull {
        limit: LINE_MAX_TASKS as u64,
    });
    for (index, result) in results.iter().enumerate() {
        match result {
            Ok(submitted) => assert!(index < LINE_MAX_TASKS && !submitted.duplicate),
            Err(error) => assert!(index >= LINE_MAX_TASKS && *error == full, "{error}"),
        }
    }
    let refused = requests[LINE_MAX_TASKS].id.unwrap();
    assert!(engine.get(refused).await.unwrap_err().is_not_found());
    // A repeated submit of a task that is in the line is a duplicate.
    let again = engine.submit(requests[7].clone()).await.unwrap();
    assert!(again.duplicate);
    // When one leaves, there is room for another.
    engine.cancel(requests[5].id.unwrap(), None).await.unwrap();
    engine.submit(ordered(None)).await.unwrap();
    assert_eq!(engine.submit(ordered(None)).await.unwrap_err(), full);
    engine.close().await;
}

/// Three tasks in a line, the first of which is completed by a process whose writes of the line are lost.
async fn complete_without_line(bucket: &Bucket) -> Vec<TaskId> {
    let engine = bucket.engine();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(engine.submit(ordered(None)).await.unwrap().task.id);
    }
    let lost = FaultRule::new(FaultKind::LostRequest, 1.0)
        .on([Operation::Create, Operation::Swap])
        .under(["order"]);
    let plan = FaultPlan::none().with(lost);
    let dying = FaultStore::new(bucket.objects(), bucket.runtime.clone(), plan, 1);
    let dying = bucket.engine_on(Arc::new(dying));
    let head = claim(&dying).await;
    assert_eq!(head.id, ids[0]);
    complete(&dying, &head).await;
    ids
}

async fn claimed(engine: &DirectEngine) -> Vec<TaskId> {
    let claimed = claim_all(engine).await;
    claimed.iter().map(|task| task.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_replay_before_the_line_is_repaired_leaves_the_next_task_its_entry() {
    let bucket = Bucket::new();
    let ids = complete_without_line(&bucket).await;
    let operator = bucket.engine();
    operator.replay(ids[0]).await.unwrap();
    operator.close().await;
    assert_eq!(claimed(&bucket.engine()).await, [ids[1]]);
}

#[tokio::test(start_paused = true)]
async fn the_next_task_gets_its_entry_although_the_replay_died_before_writing_it() {
    let bucket = Bucket::new();
    let ids = complete_without_line(&bucket).await;
    let lost = |operation| FaultRule::new(FaultKind::LostRequest, 1.0).on([operation]);
    let plan = FaultPlan::none()
        .with(lost(Operation::Put).under(["ready"]))
        .with(lost(Operation::Delete));
    let dying = FaultStore::new(bucket.objects(), bucket.runtime.clone(), plan, 1);
    let dying = bucket.engine_on(Arc::new(dying));
    dying.replay(ids[0]).await.unwrap();
    // No sweeper runs.
    let worker = bucket.engine();
    bucket.runtime.pass_seconds(240).await;
    worker.check_leases().await.unwrap();
    assert_eq!(claimed(&worker).await, [ids[1]]);
}
