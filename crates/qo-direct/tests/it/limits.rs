//! A limit that all tasks share: the changes of its record share writes, and processes share the record.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use qo_core::{DocumentId, DocumentKind, Json};
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, DocumentWrite, SubmitRequest};
use qo_fixtures::Bucket;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::{Delay, LatencyStore};

use crate::bucket::Engines;

const TASKS: usize = 400;
const SLOTS: usize = 48;

/// Processes on a bucket that takes its time, with the tasks submitted, and with a limit that leaves room for all of them.
async fn processes(count: usize, has_limit: bool) -> (Bucket, Vec<DirectEngine>) {
    let bucket = Bucket::new();
    let submitter = bucket.engine();
    if has_limit {
        let id = DocumentId {
            kind: DocumentKind::Limits,
            name: "all".parse().unwrap(),
        };
        let limit = Json::parse(r#"{"queue":"default","concurrent":1000}"#).unwrap();
        let write = DocumentWrite::new(id, None, Some(limit), bucket.runtime.new_op_id());
        submitter.write_document(write).await.unwrap();
    }
    let request = || SubmitRequest::new("job".parse().unwrap(), Json::null());
    for submitted in submitter
        .submit_many((0..TASKS).map(|_| request()).collect())
        .await
    {
        submitted.unwrap();
    }
    let delay = Delay::Uniform {
        low: Duration::from_millis(25),
        high: Duration::from_millis(35),
    };
    let engines = (0..count).map(|number| {
        let runtime = Arc::clone(&bucket.runtime);
        let store = LatencyStore::new(bucket.counted(), runtime, delay, number as u64);
        bucket.engine_on(Arc::new(store))
    });
    let engines = engines.collect();
    (bucket, engines)
}

/// Claims and completes all tasks. Returns how many each process has done, and how long it took.
async fn work(bucket: &Bucket, engines: &[DirectEngine]) -> (Vec<usize>, Duration) {
    let started = bucket.runtime.monotonic();
    let done: Vec<_> = engines.iter().map(|_| Cell::new(0)).collect();
    let left = Cell::new(TASKS);
    let slots = (0..SLOTS).map(|slot| {
        let process = slot % engines.len();
        let (engine, done, left) = (&engines[process], &done[process], &left);
        let mut request = ClaimRequest::new(
            format!("w-{process}").parse().unwrap(),
            vec!["job".parse().unwrap()],
        );
        request.wait_ms = 200;
        async move {
            while left.get() > 0 {
                for task in engine.claim(&request).await.unwrap() {
                    let lease = task.lease_id.unwrap();
                    engine.complete(task.id, lease, None).await.unwrap();
                    done.set(done.get() + 1);
                    left.set(left.get() - 1);
                }
            }
        }
    });
    join_all(slots).await;
    let took = bucket.runtime.monotonic().saturating_sub(started);
    (done.iter().map(Cell::get).collect(), took)
}

#[tokio::test(start_paused = true)]
async fn the_slots_of_a_worker_do_not_wait_for_each_other() {
    let (bucket, engines) = processes(1, false).await;
    let (_, without) = work(&bucket, &engines).await;
    let (bucket, engines) = processes(1, true).await;
    let (done, with) = work(&bucket, &engines).await;
    assert_eq!(done, [TASKS]);
    // Two waits for a write that has just begun, and for the next one, beside five requests.
    assert!(with < without * 5 / 2, "{with:?}, and {without:?} without");
}

#[tokio::test(start_paused = true)]
async fn no_process_is_kept_from_a_limit_by_others() {
    let (bucket, engines) = processes(4, true).await;
    let (done, took) = work(&bucket, &engines).await;
    assert_eq!(done.iter().sum::<usize>(), TASKS);
    let fewest = done.iter().min().copied().unwrap();
    assert!(fewest * 4 * 4 > TASKS, "{done:?} in {took:?}");
}
