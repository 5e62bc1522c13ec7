//! Index modes: claims by the index, by a scan of tasks, or by both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qo_core::{Json, Shard, Status, TaskId};
use qo_direct::DirectEngine;
use qo_direct::{DirectConfig, IndexMode};
use qo_engine::api::{ClaimRequest, SubmitRequest, When, WorkerInfo};
use qo_engine::{Engine, EngineError};
use qo_store::StoreClient;
use qo_store::wrap::{CountingStore, Counts, Operation};

use super::stores::{self, OpenStore};

/// A store whose requests are counted.
fn counted() -> (OpenStore, Arc<CountingStore>) {
    let mut store = stores::memory().store;
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    store.objects = Arc::clone(&counting) as _;
    (OpenStore::new(store), counting)
}

fn config(index_mode: IndexMode, log_scan_page_size: usize) -> DirectConfig {
    let mut config = DirectConfig::local();
    config.index_mode = index_mode;
    config.log_scan_page_size = log_scan_page_size;
    config
}

fn work(task_type: &str) -> SubmitRequest {
    SubmitRequest::new(task_type.parse().unwrap(), Json::null())
}

fn claim_request(max: usize, wait_ms: u64) -> ClaimRequest {
    let mut request = ClaimRequest::new("w-1".parse().unwrap(), vec!["work".parse().unwrap()]);
    request.max = max;
    request.wait_ms = wait_ms;
    request
}

async fn submit(engine: &DirectEngine, count: usize) -> BTreeSet<TaskId> {
    let submitted = engine.submit_many(vec![work("work"); count]).await;
    let tasks = submitted
        .into_iter()
        .map(|submitted| submitted.unwrap().task.id);
    tasks.collect()
}

/// Deletes every index entry, as if each submitter had died before it wrote one.
async fn forget_index(client: &StoreClient) {
    for prefix in ["ready", "later"] {
        let page = client.page(prefix, None, 1_000).await.unwrap();
        let keys: Vec<String> = page.entries.into_iter().map(|entry| entry.key).collect();
        client.delete_many(&keys).await.unwrap();
    }
}

/// Submits and completes `count` tasks.
async fn finish(engine: &DirectEngine, count: usize) {
    submit(engine, count).await;
    let mut done = 0;
    while done < count {
        for task in engine.claim(&claim_request(100, 5_000)).await.unwrap() {
            engine
                .complete(task.id, task.lease_id.unwrap(), None)
                .await
                .unwrap();
            done += 1;
        }
    }
    engine.close().await;
}

fn requests(counts: &Counts, prefix: &str, operation: Operation) -> u64 {
    counts.of(prefix, operation).requests
}

async fn a_task_without_an_entry_is_found(opened: OpenStore) {
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    for mode in [IndexMode::Hybrid, IndexMode::LogScan] {
        let id = submitter.submit(work("work")).await.unwrap().task.id;
        submitter.close().await;
        forget_index(&opened.client).await;

        let by_index = opened.engine_in(IndexMode::IndexOnly);
        assert_eq!(by_index.claim(&claim_request(1, 0)).await.unwrap(), []);

        let engine = opened.engine_in(mode);
        let claimed = engine.claim(&claim_request(1, 20_000)).await.unwrap();
        assert_eq!(claimed.len(), 1, "{mode:?}");
        assert_eq!(
            (claimed[0].id, claimed[0].status),
            (id, Status::Running),
            "{mode:?}"
        );
        // It has a lease like any other task.
        let lease = claimed[0].lease_id.unwrap();
        let done = engine.complete(id, lease, None).await.unwrap();
        assert_eq!(done.status, Status::Completed);
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_an_entry_is_found_on_memory() {
    a_task_without_an_entry_is_found(stores::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_an_entry_is_found_on_sqlite() {
    a_task_without_an_entry_is_found(stores::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_an_entry_is_found_on_seaweedfs() {
    a_task_without_an_entry_is_found(stores::seaweedfs()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_an_entry_is_found_on_seaweedfs_with_versions() {
    a_task_without_an_entry_is_found(stores::seaweedfs_versioned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_poll_reads_one_page_and_the_scan_passes_finished_tasks() {
    let (opened, counting) = counted();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    finish(&submitter, 100).await;
    let ids = submit(&submitter, 1).await;
    submitter.close().await;
    forget_index(&opened.client).await;

    let engine = opened.engine(config(IndexMode::LogScan, 20));
    let mut looks = 0;
    let claimed = loop {
        let before = counting.counts();
        let claimed = engine.claim(&claim_request(1, 0)).await.unwrap();
        looks += 1;
        let spent = counting.counts().since(&before);
        // The first claim notices the submits, and polls once more.
        let pages = if looks == 1 { 2 } else { 1 };
        assert!(
            requests(&spent, "tasks", Operation::Get) <= 20 * pages,
            "{spent}"
        );
        assert!(
            requests(&spent, "tasks", Operation::List) <= 2 * pages,
            "{spent}"
        );
        for index in ["ready", "later"] {
            assert_eq!(requests(&spent, index, Operation::List), 0, "{spent}");
        }
        if !claimed.is_empty() {
            break claimed;
        }
        assert!(looks < 7, "101 tasks are 6 pages of 20");
    };
    assert!(ids.contains(&claimed[0].id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_scans_everything_once_and_then_rests() {
    let (opened, counting) = counted();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    finish(&submitter, 100).await;

    let mut config = config(IndexMode::LogScan, 20);
    config.signal_interval = Duration::from_mins(10);
    config.fallback_interval = Duration::from_mins(10);
    let engine = opened.engine(config);
    assert_eq!(engine.claim(&claim_request(1, 1_000)).await.unwrap(), []);
    let spent = counting.counts();
    assert_eq!(engine.claim(&claim_request(1, 50)).await.unwrap(), []);
    let rested = counting.counts().since(&spent);
    assert_eq!(rested.requests(), 0, "{rested}");

    // A submit ends the rest.
    let ids = submit(&engine, 1).await;
    forget_index(&opened.client).await;
    let claimed = engine.claim(&claim_request(1, 20_000)).await.unwrap();
    assert!(ids.contains(&claimed[0].id));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_page_serves_many_claims() {
    let (opened, counting) = counted();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    let mut ids = submit(&submitter, 40).await;
    submitter.close().await;
    forget_index(&opened.client).await;

    let engine = opened.engine(config(IndexMode::LogScan, 50));
    let before = counting.counts();
    for _ in 0..40 {
        let claimed = engine.claim(&claim_request(1, 0)).await.unwrap();
        assert!(ids.remove(&claimed[0].id));
    }
    let spent = counting.counts().since(&before);
    // On a busy machine a page may become stale, so that the claims list again.
    assert!(requests(&spent, "tasks", Operation::Get) <= 80, "{spent}");
    assert_eq!(requests(&spent, "tasks", Operation::Swap), 40, "{spent}");
    assert!(requests(&spent, "tasks", Operation::List) <= 2, "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_matching_and_due_tasks_are_claimed() {
    let opened = stores::memory();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    let mut urgent = work("work");
    urgent.priority = 0;
    let mut later = work("work");
    later.available = When::InMillis(700);
    let mut elsewhere = work("work");
    elsewhere.queue = "elsewhere".parse().unwrap();
    let plain = submitter.submit(work("work")).await.unwrap().task.id;
    let urgent = submitter.submit(urgent).await.unwrap().task.id;
    let later = submitter.submit(later).await.unwrap().task;
    submitter.submit(work("other")).await.unwrap();
    let elsewhere = submitter.submit(elsewhere).await.unwrap().task.id;
    submitter.close().await;

    let engine = opened.engine_in(IndexMode::LogScan);
    let first = engine.claim(&claim_request(1, 0)).await.unwrap();
    assert_eq!(first[0].id, urgent);
    let second = engine.claim(&claim_request(10, 0)).await.unwrap();
    let found: Vec<_> = second.iter().map(|task| task.id).collect();
    assert!(
        found.contains(&plain) && !found.contains(&elsewhere),
        "{found:?}"
    );
    if !found.contains(&later.id) {
        let third = engine.claim(&claim_request(1, 20_000)).await.unwrap();
        assert_eq!(third[0].id, later.id);
    }
    assert!(engine.now() >= later.available_at);

    let mut anything = claim_request(10, 0);
    anything.queues = vec!["elsewhere".parse().unwrap()];
    engine.pause(&anything.queues[0]).await.unwrap();
    let queues = anything.queues.clone();
    let refusal = engine.claim(&anything).await.unwrap_err();
    assert_eq!(
        refusal,
        EngineError::QueuePaused {
            queues,
            types: vec![]
        }
    );
    engine.resume(&anything.queues[0]).await.unwrap();
    let resumed = engine.claim(&anything).await.unwrap();
    assert_eq!(resumed[0].id, elsewhere);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_tasks_do_not_stop_the_scan() {
    let opened = stores::memory();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    let ids = submit(&submitter, 16).await;
    submitter.close().await;
    forget_index(&opened.client).await;
    for shard in "0123456789abcdef".chars() {
        for key in [
            format!("tasks/{shard}/{shard}50e8400-e29b-41d4-a716-446655440000.json"),
            format!("tasks/{shard}/not-a-task"),
        ] {
            opened.client.put(&key, "{".into()).await.unwrap();
        }
    }
    let engine = opened.engine(config(IndexMode::LogScan, 5));
    let mut claimed = BTreeSet::new();
    while claimed.len() < ids.len() {
        let tasks = engine.claim(&claim_request(16, 20_000)).await.unwrap();
        assert!(!tasks.is_empty(), "{} of {}", claimed.len(), ids.len());
        claimed.extend(tasks.into_iter().map(|task| task.id));
    }
    assert_eq!(claimed, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn hybrid_mode_scans_tasks_rarely_and_only_if_the_index_is_empty() {
    let (opened, counting) = counted();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    submit(&submitter, 30).await;
    submitter.close().await;
    let mut config = config(IndexMode::Hybrid, 10);
    config.fallback_interval = Duration::from_mins(10);
    let engine = opened.engine(config);
    let before = counting.counts();
    let claimed = engine.claim(&claim_request(30, 0)).await.unwrap();
    assert_eq!(claimed.len(), 30);
    let spent = counting.counts().since(&before);
    assert_eq!(requests(&spent, "tasks", Operation::List), 0, "{spent}");
    assert_eq!(requests(&spent, "tasks", Operation::Get), 30, "{spent}");

    // When the index is empty for the first time, one page of tasks is read, and then none for ten minutes.
    let before = counting.counts();
    for _ in 0..5 {
        assert_eq!(engine.claim(&claim_request(1, 0)).await.unwrap(), []);
    }
    let spent = counting.counts().since(&before);
    assert!(requests(&spent, "tasks", Operation::List) <= 2, "{spent}");
    assert_eq!(requests(&spent, "tasks", Operation::Get), 10, "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_scan_share_the_work_and_no_task_is_claimed_twice() {
    let opened = stores::sqlite();
    let submitter = opened.engine_in(IndexMode::IndexOnly);
    let ids = submit(&submitter, 120).await;
    submitter.close().await;
    forget_index(&opened.client).await;

    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let engine = opened.engine(config(IndexMode::LogScan, 10));
        workers.spawn(async move {
            let mut mine = Vec::new();
            // A complete scan is twelve pages. A waiting claim continues until it has a task.
            loop {
                let claimed = engine.claim(&claim_request(3, 2_000)).await.unwrap();
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(claimed.into_iter().map(|task| (task.id, task.attempt)));
            }
        });
    }
    let claimed: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
    assert!(claimed.iter().all(|(_, attempt)| *attempt == 1));
    assert_eq!(claimed.len(), ids.len());
    let claimed: BTreeSet<_> = claimed.into_iter().map(|(id, _)| id).collect();
    assert_eq!(claimed, ids);
}

#[tokio::test]
async fn a_claim_for_shards_reads_no_task_of_others() {
    for mode in [IndexMode::IndexOnly, IndexMode::Hybrid, IndexMode::LogScan] {
        let (opened, counting) = counted();
        let engine = opened.engine(config(mode, 1_000));
        let ids = submit(&engine, 64).await;
        let before = counting.counts();
        let some: Vec<Shard> = Shard::all().step_by(2).collect();
        let asked = ClaimRequest {
            shards: some.clone(),
            ..claim_request(64, 0)
        };
        let claimed = engine.claim(&asked).await.unwrap();
        let expected: BTreeSet<_> = ids
            .iter()
            .copied()
            .filter(|id| some.contains(&id.shard()))
            .collect();
        let claimed: BTreeSet<_> = claimed.into_iter().map(|task| task.id).collect();
        assert_eq!(claimed, expected, "{mode:?}");
        let reads = counting.counts().since(&before).of("tasks", Operation::Get);
        assert_eq!(reads.requests, expected.len() as u64, "{mode:?}");
        // A claim for all shards gets the remaining tasks.
        let rest = engine.claim(&claim_request(64, 0)).await.unwrap();
        assert_eq!(rest.len(), ids.len() - expected.len(), "{mode:?}");
    }
}

#[tokio::test]
async fn workers_of_different_shards_complete_all_tasks() {
    let (opened, _) = counted();
    let engine = opened.engine(config(IndexMode::IndexOnly, 50));
    let halves: [Vec<Shard>; 2] = [
        Shard::all().take(8).collect(),
        Shard::all().skip(8).collect(),
    ];
    let names = ["low", "high"];
    for (name, shards) in names.iter().zip(&halves) {
        let mut record = WorkerInfo::new(name.parse().unwrap(), engine.now());
        record.shards.clone_from(shards);
        engine.heartbeat(&record).await.unwrap();
    }
    let ids = submit(&engine, 64).await;
    for (name, shards) in names.iter().zip(&halves) {
        let asked = ClaimRequest {
            worker: name.parse().unwrap(),
            shards: shards.clone(),
            ..claim_request(64, 0)
        };
        // It claims them at once, without waiting for the other worker.
        let claimed = engine.claim(&asked).await.unwrap();
        let own = ids.iter().filter(|id| shards.contains(&id.shard()));
        assert_eq!(claimed.len(), own.count(), "{name}");
    }
}
