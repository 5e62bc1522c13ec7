//! The requests of a task from submit to completion.

use std::sync::Arc;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{DocumentId, DocumentKind, Json, OpId};
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, DocumentWrite, SubmitRequest, WorkerInfo};
use qo_fixtures::assert_written_once;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::{CountingStore, Operation};

const TASKS: u64 = 2_000;
const ORDERED: u64 = 60;

fn counted() -> (Arc<CountingStore>, DirectEngine) {
    let runtime = TokioRuntime::shared();
    let counting = Arc::new(CountingStore::new(Arc::new(
        object_store::memory::InMemory::new(),
    )));
    let client = StoreClient::new(
        counting.clone(),
        Arc::new(StoreClock::new()),
        runtime.clone(),
        ClientConfig::default(),
    );
    let engine = DirectEngine::new(client, None, runtime, DirectConfig::default());
    (counting, engine)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_costs_five_puts_and_one_get() {
    let (counting, engine) = counted();
    let request =
        |n: u64| SubmitRequest::new("noop".parse().unwrap(), Json::parse(n.to_string()).unwrap());
    for submitted in engine.submit_many((0..TASKS).map(request).collect()).await {
        assert!(!submitted.unwrap().duplicate);
    }
    let worker: qo_core::WorkerId = "w-1".parse().unwrap();
    let info = WorkerInfo::new(worker.clone(), engine.now());
    engine.heartbeat(&info).await.unwrap();
    let mut claim_request = ClaimRequest::new(worker, vec!["noop".parse().unwrap()]);
    claim_request.max = 64;
    let mut done = 0;
    while done < TASKS {
        for task in engine.claim(&claim_request).await.unwrap() {
            let lease = task.lease_id.unwrap();
            engine
                .complete(task.id, lease, Some(Json::null()))
                .await
                .unwrap();
            done += 1;
        }
    }
    engine.close().await;

    let counts = counting.counts();
    assert_written_once(&counts, TASKS);
    let of = |prefix: &str, operation| counts.of(prefix, operation).requests;
    // A list that was requested before a batch of deletions may still contain their entries, and each costs a read.
    let twice = TASKS / 2;
    let ready = counts.of("ready", Operation::Delete).keys;
    assert!((TASKS..=TASKS + twice).contains(&ready), "{counts}");
    assert_eq!(
        counts.of("leases", Operation::Delete).keys,
        TASKS,
        "{counts}"
    );
    // Requests that are not counted per task: a page of work, the signal, the workers.
    let rest = counts.total(Operation::Put).requests - 2 * TASKS;
    assert!(rest <= TASKS / 20, "{counts}");
    assert!(of("tasks", Operation::Get) <= TASKS + twice, "{counts}");
    assert!(
        counts.total(Operation::List).requests <= TASKS / 20,
        "{counts}"
    );
    assert_eq!(counts.total(Operation::Swap).refused, 0, "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordering_key_costs_two_puts_and_four_gets_more() {
    let (counting, engine) = counted();
    for number in 0..ORDERED {
        let mut request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
        request.ordering = Some(OrderingRule {
            key: format!("key {}", number % 3).parse().unwrap(),
            on_failure: OnFailure::Continue,
        });
        engine.submit(request).await.unwrap();
    }
    let mut claim_request =
        ClaimRequest::new("w-1".parse().unwrap(), vec!["noop".parse().unwrap()]);
    claim_request.max = 64;
    let mut done = 0;
    while done < ORDERED {
        for task in engine.claim(&claim_request).await.unwrap() {
            let lease = task.lease_id.unwrap();
            engine.complete(task.id, lease, None).await.unwrap();
            done += 1;
        }
    }
    engine.close().await;
    let counts = counting.counts();
    let of = |prefix: &str, operation| counts.of(prefix, operation).requests;
    // The first task of each key creates its line.
    assert_eq!(of("order", Operation::Create), 3, "{counts}");
    assert_eq!(of("order", Operation::Swap), 2 * ORDERED - 3, "{counts}");
    assert_eq!(of("ready", Operation::Put), ORDERED, "{counts}");
    // One for the submit, one for the claim and one for the end.
    assert_eq!(of("order", Operation::Get), 3 * ORDERED, "{counts}");
    // The next task is read once when it becomes the head, and once when it is claimed.
    let gets = of("tasks", Operation::Get);
    assert!(gets <= 2 * ORDERED + ORDERED / 4, "{counts}");
    assert_eq!(counts.total(Operation::Swap).refused, 0, "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_costs_two_puts_more_and_nothing_for_other_tasks() {
    let (counting, engine) = counted();
    let id = DocumentId {
        kind: DocumentKind::Limits,
        name: "stripe".parse().unwrap(),
    };
    let body = Json::parse(r#"{"limit_key":"stripe","concurrent":10}"#).unwrap();
    let write = DocumentWrite::new(id, None, Some(body), OpId::from_random(1));
    engine.write_document(write).await.unwrap();
    let run = async |key: Option<&str>| {
        let before = counting.counts();
        for _ in 0..ORDERED {
            let mut request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
            request.limit_key = key.map(|key| key.parse().unwrap());
            engine.submit(request).await.unwrap();
        }
        let mut claim_request =
            ClaimRequest::new("w-1".parse().unwrap(), vec!["noop".parse().unwrap()]);
        claim_request.max = 1;
        claim_request.wait_ms = 5_000;
        for _ in 0..ORDERED {
            let task = engine.claim(&claim_request).await.unwrap().remove(0);
            let lease = task.lease_id.unwrap();
            engine.complete(task.id, lease, None).await.unwrap();
        }
        let after = counting.counts();
        let of = |operation| {
            after.of("limits", operation).requests - before.of("limits", operation).requests
        };
        (
            of(Operation::Create) + of(Operation::Swap),
            of(Operation::Get),
        )
    };
    assert_eq!(run(None).await, (0, 0));
    assert_eq!(run(Some("another")).await, (0, 0));
    // The record is read once. After that this process knows it, because nobody else changes it.
    assert_eq!(run(Some("stripe")).await, (2 * ORDERED, 1));
    engine.close().await;
    let counts = counting.counts();
    // The limits are listed when the process starts.
    assert!(counts.of("meta", Operation::List).requests <= 2, "{counts}");
    assert_eq!(counts.of("limits", Operation::Swap).refused, 0, "{counts}");
}
