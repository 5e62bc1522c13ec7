//! The monitor, the sweeper and the maintenance runner of direct mode, in paused time.

mod leases;
mod runner;
mod sweeper;

use qo_core::{Json, Status, Task, TaskId};
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest};

pub(crate) fn request() -> SubmitRequest {
    SubmitRequest::new("noop".parse().unwrap(), Json::null())
}

fn claim_request(worker: &str) -> ClaimRequest {
    ClaimRequest::new(worker.parse().unwrap(), vec!["noop".parse().unwrap()])
}

async fn submit(engine: &DirectEngine) -> Task {
    engine.submit(request()).await.unwrap().task
}

async fn submit_many(engine: &DirectEngine, count: usize) -> Vec<Task> {
    let requests = (0..count).map(|_| request()).collect();
    let submitted = engine.submit_many(requests).await;
    submitted
        .into_iter()
        .map(|submitted| submitted.unwrap().task)
        .collect()
}

/// Claims one task, which must exist.
pub(crate) async fn claim(engine: &DirectEngine) -> Task {
    let mut claimed = engine.claim(&claim_request("w")).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

pub(crate) async fn claim_all(engine: &DirectEngine) -> Vec<Task> {
    let mut claim_request = claim_request("w");
    claim_request.max = 1_000;
    let mut all = Vec::new();
    loop {
        let claimed = engine.claim(&claim_request).await.unwrap();
        if claimed.is_empty() {
            return all;
        }
        all.extend(claimed);
        // A page of entries that are being deleted hides later entries until the deletions are complete.
        engine.close().await;
    }
}

pub(crate) async fn complete(engine: &DirectEngine, task: &Task) {
    let lease = task.lease_id.unwrap();
    engine.complete(task.id, lease, None).await.unwrap();
}

async fn status(engine: &DirectEngine, id: TaskId) -> Status {
    engine.get(id).await.unwrap().status
}
