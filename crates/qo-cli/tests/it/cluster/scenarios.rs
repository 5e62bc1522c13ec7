//! The failure scenarios of the replicated task queue that cluster mode grew out of.

use std::time::Duration;

use qo::{ClaimRequest, Json, Status, SubmitRequest, TaskFilter};
use qo_store::runtime::{RuntimeExt, TokioRuntime};

use super::nodes::Cluster;

fn task() -> SubmitRequest {
    SubmitRequest {
        id: Some(TokioRuntime::shared().new_task_id()),
        ..SubmitRequest::new("work".parse().unwrap(), Json::null())
    }
}

fn claim(worker: &str, lease_ms: u64) -> ClaimRequest {
    ClaimRequest {
        wait_ms: 30_000,
        lease_ms: Some(lease_ms),
        ..ClaimRequest::new(worker.parse().unwrap(), vec!["work".parse().unwrap()])
    }
}

/// The claim expires, another worker completes the task, and the first one can no longer change it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_1_a_worker_crashes_mid_task() {
    let cluster = Cluster::start();
    let queue = cluster.queue().await;
    let id = queue.submit(task()).await.unwrap().task.id;
    let first = queue.claim(&claim("worker-a", 1_000)).await.unwrap();
    assert_eq!((first[0].id, first[0].attempt), (id, 1));
    let second = queue.claim(&claim("worker-b", 60_000)).await.unwrap();
    assert_eq!((second[0].id, second[0].attempt), (id, 2));
    let lost = queue.complete(id, first[0].lease_id.unwrap(), None).await;
    assert_eq!(lost.unwrap_err().kind(), qo::ErrorKind::LeaseLost);
    let done = queue.complete(id, second[0].lease_id.unwrap(), None).await;
    assert_eq!(done.unwrap().status, Status::Completed);
}

/// A submit that the leader did not replicate before it died is repeated under the same id; there is one task for each id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_2_the_leader_crashes_with_pending_submits() {
    let mut cluster = Cluster::start();
    let queue = cluster.queue().await;
    let requests: Vec<_> = (0..400).map(|_| task()).collect();
    let mut submits = tokio::task::JoinSet::new();
    for request in requests.iter().cloned() {
        let queue = queue.clone();
        submits.spawn(async move { (request.id, queue.submit(request).await) });
    }
    let runtime = TokioRuntime::shared();
    runtime.sleep(Duration::from_millis(20)).await;
    let leader = cluster.leader();
    cluster.kill(leader);
    while let Some(submit) = submits.join_next().await {
        let (id, submitted) = submit.unwrap();
        assert_eq!(Some(submitted.unwrap().task.id), id);
    }
    let page = queue
        .list(&TaskFilter::default(), None, 1_000)
        .await
        .unwrap();
    assert_eq!(page.tasks.len(), requests.len(), "one task for each id");
    // The others agree: each of them shows the same when it leads.
    cluster.start_node(leader);
    cluster.settle();
    let next = cluster.leader();
    cluster.kill(next);
    let again = queue
        .list(&TaskFilter::default(), None, 1_000)
        .await
        .unwrap();
    assert_eq!(again.tasks, page.tasks);
}

/// A submit whose response was lost is repeated: it returns the task that exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_3_a_submit_is_repeated_after_its_response_was_lost() {
    let cluster = Cluster::start();
    let (first, second) = (cluster.queue().await, cluster.queue().await);
    let request = task();
    let created = first.submit(request.clone()).await.unwrap();
    assert!(!created.duplicate);
    let repeated = second.submit(request).await.unwrap();
    assert!(repeated.duplicate);
    assert_eq!(repeated.task, created.task);
    let page = first.list(&TaskFilter::default(), None, 10).await.unwrap();
    assert_eq!(page.tasks.len(), 1);
}
