//! A process dies at any of its requests: everything acknowledged exists, and nothing is half done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_core::{Status, TaskId};
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore};

use super::engines::{Journal, all_tasks, claim_request, job, json, memory};

/// The last acknowledged status of each task.
type Told = Arc<Mutex<BTreeMap<TaskId, Status>>>;

/// Calls of all kinds, until one fails.
async fn live(engine: &BrokerEngine, runtime: &dyn Runtime, told: &Told) -> Option<()> {
    let tell = |id, status| {
        told.lock().unwrap().insert(id, status);
    };
    for n in 0..3 {
        let id = runtime.new_task_id();
        let mut request = SubmitRequest {
            id: Some(id),
            ..job("a")
        };
        if n == 1 {
            request.input = json(&format!("\"{}\"", "x".repeat(100_000)));
        }
        engine.submit(request).await.ok()?;
        tell(id, Status::Pending);
        let task = engine
            .claim(&claim_request("a", 1, 100))
            .await
            .ok()?
            .pop()?;
        tell(task.id, Status::Running);
        let lease = task.lease_id?;
        if n == 0 {
            engine.release(task.id, lease).await.ok()?;
            tell(task.id, Status::Pending);
            engine.cancel(task.id, None).await.ok()?;
            tell(task.id, Status::Cancelled);
            engine.replay(task.id).await.ok()?;
            tell(task.id, Status::Pending);
            engine.cancel(task.id, None).await.ok()?;
            tell(task.id, Status::Cancelled);
        } else {
            let output = Some(json("[1]"));
            engine.complete(task.id, lease, output).await.ok()?;
            tell(task.id, Status::Completed);
            engine.archive(task.id).await.ok()?;
            tell(task.id, Status::Archived);
        }
    }
    Some(())
}

/// Crashes a process at its `request`-th request. Returns whether it made that many.
async fn dies_at(journal: Journal, request: u64) -> bool {
    let runtime = TokioRuntime::shared();
    let bottom = memory();
    let store = Arc::new(FaultStore::new(
        Arc::clone(&bottom),
        Arc::clone(&runtime),
        FaultPlan::none().at(request, FaultKind::Crash),
        request,
    ));
    let told: Told = Arc::default();
    let mut life = tokio::task::JoinSet::new();
    {
        let (store, runtime, told) = (Arc::clone(&store), Arc::clone(&runtime), Arc::clone(&told));
        life.spawn(async move {
            let objects: Arc<dyn ObjectStore> = store;
            let engine = journal.open(objects, &runtime).await.ok()?;
            live(&engine, runtime.as_ref(), &told).await
        });
    }
    // A crashed process neither replies nor exits.
    while life.try_join_next().is_none() && !store.is_crashed() {
        runtime.sleep(Duration::from_millis(2)).await;
    }
    let died = store.is_crashed();
    life.abort_all();
    let told = told.lock().unwrap().clone();
    let successor = journal.open(bottom, &runtime).await.unwrap();
    let found: BTreeMap<TaskId, Status> = all_tasks(&successor)
        .await
        .into_iter()
        .map(|task| (task.id, task.status))
        .collect();
    for (id, status) in &told {
        let found = found.get(id).unwrap_or_else(|| {
            panic!("{journal:?}: {id}, told to be {status}, is gone after a crash at {request}")
        });
        // One more change may have happened without an acknowledgement.
        let next: &[Status] = match status {
            Status::Pending => &[Status::Pending, Status::Running, Status::Cancelled],
            Status::Running => &[Status::Running, Status::Pending, Status::Completed],
            Status::Cancelled => &[Status::Cancelled, Status::Pending],
            Status::Completed => &[Status::Completed, Status::Archived],
            other => &[*other][..],
        };
        assert!(
            next.contains(found),
            "{journal:?}: told {status}, found {found} after {request}"
        );
    }
    assert!(
        found.len() <= told.len() + 1,
        "{journal:?}: {found:?} {told:?}"
    );
    // The successor serves.
    let task = successor.submit(job("b")).await.unwrap().task;
    let claimed = successor
        .claim(&claim_request("b", 1, 5_000))
        .await
        .unwrap();
    assert_eq!(claimed[0].id, task.id);
    successor.close().await;
    died
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_at_any_request_loses_nothing_acknowledged() {
    for journal in Journal::BOTH {
        let mut request = 1;
        while dies_at(journal, request).await && request < 60 {
            request += 1;
        }
        assert!(request > 10, "{journal:?}: only {request} requests");
    }
}
