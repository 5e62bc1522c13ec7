//! The failure scenarios of the replicated task queue that cluster mode grew out of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qo::{ClaimRequest, Connect, Json, OpenOptions, Status, SubmitRequest, TaskFilter};
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use qo_testkit::proxy::{Fate, Proxy};

use super::nodes::Cluster;

/// More submits than a leader acknowledges at once.
const SUBMITS: usize = 800;

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
    let leader = cluster.leader();
    let requests: Vec<_> = (0..SUBMITS).map(|_| task()).collect();
    let acknowledged = Arc::new(AtomicUsize::new(0));
    // Ten clients, each with one submit after the other, so that some are pending whenever the leader dies.
    let mut clients = tokio::task::JoinSet::new();
    for part in requests.chunks(SUBMITS / 10) {
        let (queue, acknowledged) = (queue.clone(), Arc::clone(&acknowledged));
        let part = part.to_vec();
        clients.spawn(async move {
            for request in part {
                let (id, submitted) = (request.id, queue.submit(request).await);
                assert_eq!(Some(submitted.unwrap().task.id), id);
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    // It dies as soon as it has acknowledged something.
    while acknowledged.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    cluster.kill(leader);
    let before = acknowledged.load(Ordering::SeqCst);
    println!("{before} of {SUBMITS} submits were acknowledged before the leader died");
    assert!(before < SUBMITS, "no submit was pending");
    while let Some(client) = clients.join_next().await {
        client.unwrap();
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

/// A submit whose response was lost is repeated: it returns the task that exists. Another client that submits the same id gets this task, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_3_a_submit_is_repeated_after_its_response_was_lost() {
    let cluster = Cluster::start();
    let leader = cluster.url_of(cluster.leader());
    let submits = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&submits);
    let address = leader.strip_prefix("http://").unwrap().parse().unwrap();
    let proxy = Proxy::start(address, move |request| {
        let is_submit = request.method == "POST" && request.path == "/v1/tasks";
        if is_submit && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            Fate::LoseResponse
        } else {
            Fate::Forward
        }
    });
    let connect = Connect::to(proxy.unwrap().url());
    let connect = connect.options(OpenOptions::new(TokioRuntime::shared()));
    let (first, second) = (connect.open().await.unwrap(), cluster.queue().await);
    // The client chooses the id, so it can tell its own repetition from a duplicate.
    let mut request = SubmitRequest { id: None, ..task() };
    let created = first.submit(request.clone()).await.unwrap();
    let sent = submits.load(Ordering::SeqCst);
    assert_eq!(sent, 2, "the submit was not repeated, or more than once");
    assert!(
        !created.duplicate,
        "a client's own repetition is no duplicate"
    );
    request.id = Some(created.task.id);
    let repeated = second.submit(request).await.unwrap();
    assert!(repeated.duplicate);
    assert_eq!(repeated.task, created.task);
    let page = second.list(&TaskFilter::default(), None, 10).await.unwrap();
    assert_eq!(page.tasks.len(), 1);
}
