//! Urgent tasks come first, even if they are submitted after a worker has polled.

use std::time::Duration;

use qo_core::Json;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, WorkerInfo};
use qo_store::runtime::Runtime;

use qo_fixtures::Bucket;

use crate::bucket::Engines as _;

#[tokio::test(start_paused = true)]
async fn an_urgent_task_does_not_wait_behind_a_cached_page() {
    let bucket = Bucket::new();
    let (submitter, worker) = (bucket.engine(), bucket.engine());
    let job = || SubmitRequest::new("job".parse().unwrap(), Json::null());
    for submitted in submitter.submit_many(vec![job(); 50]).await {
        submitted.unwrap();
    }
    let name: qo_core::WorkerId = "w-1".parse().unwrap();
    let info = WorkerInfo::new(name.clone(), worker.now());
    worker.heartbeat(&info).await.unwrap();
    let claim_request = ClaimRequest::new(name, vec!["job".parse().unwrap()]);
    assert_eq!(worker.claim(&claim_request).await.unwrap().len(), 1);

    let urgent = SubmitRequest {
        priority: 0,
        ..job()
    };
    let urgent = submitter.submit(urgent).await.unwrap().task;
    // The worker is busy with its tasks for a while.
    bucket.runtime.sleep(Duration::from_secs(10)).await;
    assert_eq!(worker.claim(&claim_request).await.unwrap()[0].id, urgent.id);
}
