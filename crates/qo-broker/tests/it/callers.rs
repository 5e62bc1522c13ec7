//! Cancelled calls, waiting claims, and group commits.

#![expect(
    clippy::disallowed_methods,
    reason = "tests in real time use tokio's tasks"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_core::Status;
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::watch::{Commit, TaskChange, Watcher};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::wrap::{CountingStore, Delay, LatencyStore, Operation};

use super::engines::{Journal, WAIT_MAX, all_tasks, claim_one, claim_request, job, memory};

/// A store whose requests take this long.
fn slow(
    store: Arc<dyn ObjectStore>,
    runtime: &Arc<dyn Runtime>,
    request_ms: u64,
) -> Arc<dyn ObjectStore> {
    let delay = Delay::Fixed(Duration::from_millis(request_ms));
    Arc::new(LatencyStore::new(store, Arc::clone(runtime), delay, 1))
}

/// An engine whose requests take 60 ms.
async fn slow_engine(journal: Journal) -> (Arc<dyn Runtime>, BrokerEngine) {
    let runtime = TokioRuntime::shared();
    let slow = slow(memory(), &runtime, 60);
    let engine = journal.open(slow, &runtime).await.unwrap();
    (runtime, engine)
}

/// A submit in progress.
type Submitting = tokio::task::JoinHandle<Result<Submitted, EngineError>>;

/// Submits a `b`, and an `a` while that is written. The loop of the JSON journal waits for the write, so the `a` and what follows share a
/// group.
async fn submit_while_busy(
    runtime: &dyn Runtime,
    engine: &BrokerEngine,
) -> (Submitting, Submitting) {
    let submit = |task_type| {
        let (engine, request) = (engine.clone(), job(task_type));
        tokio::spawn(async move { engine.submit(request).await })
    };
    let busy = submit("b");
    runtime.sleep(Duration::from_millis(10)).await;
    let submitting = submit("a");
    runtime.sleep(Duration::from_millis(1)).await;
    (busy, submitting)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancelled_call_leaves_nothing_half_done() {
    for journal in Journal::BOTH {
        let runtime = TokioRuntime::shared();
        let slow = slow(memory(), &runtime, 10);
        let engine = journal.open(slow, &runtime).await.unwrap();
        let mut asked = Vec::new();
        for n in 0..60_u64 {
            let id = runtime.new_task_id();
            asked.push(id);
            let request = SubmitRequest {
                id: Some(id),
                ..job("a")
            };
            let patience = Duration::from_micros(n * 500);
            // Some callers give up before their request is read, some during the write, and some get their reply.
            let _ = tokio::time::timeout(patience, engine.submit(request)).await;
        }
        engine.maintain().await.unwrap();
        let tasks = all_tasks(&engine).await;
        for task in &tasks {
            assert!(asked.contains(&task.id));
            assert_eq!(task.events.len(), 1, "{task:?}");
        }
        let claimed = engine.claim(&claim_request("a", 100, 0)).await.unwrap();
        assert_eq!(
            claimed.len(),
            tasks.len(),
            "{journal:?}: each can be claimed"
        );
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_of_a_cancelled_claim_go_to_the_next_claim() {
    for journal in Journal::BOTH {
        let (_, engine) = slow_engine(journal).await;
        // A caller that gives up while it waits for work.
        let idle = claim_request("a", 1, 60_000);
        let gone = tokio::time::timeout(Duration::from_millis(200), engine.claim(&idle)).await;
        assert!(gone.is_err());
        let task = engine.submit(job("a")).await.unwrap().task;
        // A caller that gives up at several moments while its claim is written.
        for wait_ms in [5, 30, 50] {
            let hasty = claim_request("a", 1, 0);
            let claim = engine.claim(&hasty);
            let _ = tokio::time::timeout(Duration::from_millis(wait_ms), claim).await;
        }
        // Leases last ten minutes here, so a task that is claimed in time was released before.
        let claimed = tokio::time::timeout(WAIT_MAX, claim_one(&engine, "a")).await;
        let (claimed, lease) = claimed.expect("the task came back");
        assert_eq!(claimed.id, task.id, "{journal:?}");
        assert_eq!(claimed.retry_count, 0, "it does not count as a retry");
        let done = engine.complete(task.id, lease, None).await.unwrap();
        assert_eq!(done.status, Status::Completed);
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_share_a_write() {
    let runtime = TokioRuntime::shared();
    let slow = slow(memory(), &runtime, 20);
    let counting = Arc::new(CountingStore::new(slow));
    let engine = Journal::Json
        .open(Arc::<CountingStore>::clone(&counting), &runtime)
        .await
        .unwrap();
    engine.submit(job("a")).await.unwrap();
    let writes = || {
        let counts = counting.counts();
        counts.total(Operation::Create).requests + counts.total(Operation::Swap).requests
    };
    let before = writes();
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..200 {
        let engine = engine.clone();
        callers.spawn(async move {
            let request = SubmitRequest {
                // One in ten is rejected on its own.
                priority: if n % 10 == 0 { 10 } else { 5 },
                ..job("a")
            };
            engine.submit(request).await
        });
    }
    let answers = callers.join_all().await;
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    assert_eq!(refused, 20);
    let wrote = writes() - before;
    assert!(wrote <= 20, "200 callers took {wrote} writes");
    assert_eq!(all_tasks(&engine).await.len(), 181);

    // A single operation is one write. An operation that changes nothing is none.
    let before = writes();
    engine.submit(job("b")).await.unwrap();
    assert_eq!(writes() - before, 1);
    assert_eq!(engine.claim(&claim_request("c", 1, 0)).await.unwrap(), []);
    assert_eq!(engine.claim(&claim_request("c", 1, 50)).await.unwrap(), []);
    assert_eq!(writes() - before, 1, "an empty claim writes nothing");
    engine.close().await;
    assert_eq!(engine.submit(job("a")).await, Err(EngineError::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_expire_without_any_call() {
    for journal in Journal::BOTH {
        let runtime = TokioRuntime::shared();
        let engine = journal.open(memory(), &runtime).await.unwrap();
        let mut request = job("a");
        request.retry_policy.initial_interval_ms = 1;
        request.retry_policy.max_interval_ms = 1;
        let task = engine.submit(request).await.unwrap().task;
        let doomed = ClaimRequest {
            lease_ms: Some(20),
            ..claim_request("a", 1, 1_000)
        };
        assert_eq!(engine.claim(&doomed).await.unwrap().len(), 1);
        // A claim that waits before the lease expires is served when it does.
        let (again, _) = tokio::time::timeout(WAIT_MAX, claim_one(&engine, "a"))
            .await
            .expect("the lease has run out");
        assert_eq!((again.id, again.attempt), (task.id, 2), "{journal:?}");
        engine.close().await;
    }
}

/// Counts commits, and the tasks that they changed.
#[derive(Default)]
struct Commits {
    commits: AtomicUsize,
    tasks: AtomicUsize,
}

impl Watcher for Commits {
    fn committed(&self, commit: &Commit) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.tasks.fetch_add(commit.tasks, Ordering::Relaxed);
    }

    fn listens(&self) -> bool {
        false
    }

    fn changed(&self, _change: &Arc<TaskChange>) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_must_be_read_first_share_a_write() {
    const TASKS: usize = 500;
    for journal in Journal::BOTH {
        let runtime: Arc<dyn Runtime> = TokioRuntime::shared();
        let engine = journal.open(memory(), &runtime).await.unwrap();
        let commits = Arc::new(Commits::default());
        let watcher: Weak<Commits> = Arc::downgrade(&commits);
        assert!(engine.watch(watcher));
        // A chosen id may be that of a finished task.
        let requests = (0..TASKS).map(|_| SubmitRequest {
            id: Some(runtime.new_task_id()),
            ..job("a")
        });
        for submitted in engine.submit_many(requests.collect()).await {
            assert!(!submitted.unwrap().duplicate);
        }
        assert_eq!(commits.tasks.load(Ordering::Relaxed), TASKS);
        let count = commits.commits.load(Ordering::Relaxed);
        assert!(count <= TASKS / 5, "{journal:?}: {count} commits");
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_claims_are_served_in_the_order_of_their_arrival() {
    for journal in Journal::BOTH {
        let (runtime, engine) = slow_engine(journal).await;
        engine.submit(job("b")).await.unwrap();
        let claim = |worker: &str| {
            let (engine, mut request) = (engine.clone(), claim_request("a", 1, 60_000));
            request.worker = worker.parse().unwrap();
            tokio::spawn(async move { engine.claim(&request).await.unwrap() })
        };
        let first = claim("w-first");
        runtime.sleep(Duration::from_millis(300)).await;
        let (busy, submitting) = submit_while_busy(&*runtime, &engine).await;
        let second = claim("w-second");
        let claimed = tokio::time::timeout(WAIT_MAX, first).await;
        let claimed = claimed.expect("the first claim is served").unwrap();
        assert_eq!(claimed.len(), 1, "{journal:?}");
        busy.await.unwrap().unwrap();
        submitting.await.unwrap().unwrap();
        engine.submit(job("a")).await.unwrap();
        assert_eq!(second.await.unwrap().len(), 1);
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_close_releases_the_tasks_of_a_claim_whose_caller_has_gone() {
    for journal in Journal::BOTH {
        let runtime = TokioRuntime::shared();
        let store = memory();
        let slow = slow(store.clone(), &runtime, 60);
        let engine = journal.open(slow, &runtime).await.unwrap();
        let task = engine.submit(job("a")).await.unwrap().task;
        let request = claim_request("a", 1, 0);
        let claim = tokio::time::timeout(Duration::from_millis(30), engine.claim(&request));
        assert!(claim.await.is_err(), "{journal:?}");
        engine.close().await;
        let engine = journal.open(store, &runtime).await.unwrap();
        let stored = engine.get(task.id).await.unwrap();
        assert_eq!(stored.status, Status::Pending, "{journal:?}");
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_that_waits_at_a_close_takes_nothing() {
    let runtime = TokioRuntime::shared();
    let store = memory();
    let slow = slow(store.clone(), &runtime, 60);
    let engine = Journal::Json.open(slow, &runtime).await.unwrap();
    engine.submit(job("b")).await.unwrap();
    let (waiting, request) = (engine.clone(), claim_request("a", 1, 60_000));
    let waiting = tokio::spawn(async move { waiting.claim(&request).await });
    runtime.sleep(Duration::from_millis(300)).await;
    // The next task and the close share a group.
    let (busy, submitting) = submit_while_busy(&*runtime, &engine).await;
    engine.close().await;
    busy.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap(), Err(EngineError::Closed));
    if let Ok(submitted) = submitting.await.unwrap() {
        let engine = Journal::Json.open(store, &runtime).await.unwrap();
        let stored = engine.get(submitted.task.id).await.unwrap();
        assert_eq!(stored.status, Status::Pending);
        engine.close().await;
    }
}
