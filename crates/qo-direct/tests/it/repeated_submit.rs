//! A caller that got no response submits the same id again. That must make the task visible, if the first submit did not get that far.

use qo_core::keys::{LATER_PREFIX, READY_PREFIX};
use qo_core::{Json, TaskId};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, When};
use qo_fixtures::Bucket;

use crate::bucket::Engines as _;

fn request() -> SubmitRequest {
    SubmitRequest {
        id: Some(TaskId::from_random(7)),
        ..SubmitRequest::new("noop".parse().unwrap(), Json::null())
    }
}

fn claim_request() -> ClaimRequest {
    ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()])
}

/// Submits a task twice. The first process dies before it has written the entry below `prefix`, and nothing is repaired meanwhile.
async fn the_entry_is_written_again(bucket: &Bucket, request: &SubmitRequest, prefix: &str) {
    let first = bucket.engine().submit(request.clone()).await.unwrap();
    let entries = bucket.keys(prefix).await;
    assert_eq!(entries.len(), 1);
    bucket.delete_all(prefix).await;
    let again = bucket.engine().submit(request.clone()).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(again.task, first.task);
    assert_eq!(bucket.keys(prefix).await, entries);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_submit_writes_the_ready_entry_again() {
    let bucket = Bucket::new();
    the_entry_is_written_again(&bucket, &request(), READY_PREFIX).await;
    let claimed = bucket.engine().claim(&claim_request()).await.unwrap();
    assert_eq!(
        claimed.first().map(|task| Some(task.id)),
        Some(request().id)
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_submit_writes_the_entry_of_a_delayed_task_again() {
    let bucket = Bucket::new();
    let delayed = SubmitRequest {
        available: When::InMillis(60_000),
        ..request()
    };
    the_entry_is_written_again(&bucket, &delayed, LATER_PREFIX).await;
    assert_eq!(bucket.keys(READY_PREFIX).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_submit_writes_no_entry_for_a_task_that_was_claimed() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    engine.submit(request()).await.unwrap();
    assert_eq!(engine.claim(&claim_request()).await.unwrap().len(), 1);
    engine.close().await;
    assert_eq!(bucket.keys(READY_PREFIX).await, [""; 0]);
    assert!(bucket.engine().submit(request()).await.unwrap().duplicate);
    assert_eq!(bucket.keys(READY_PREFIX).await, [""; 0]);
}
