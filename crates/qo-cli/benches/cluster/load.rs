//! Clients: they submit, claim and complete in batches through the remote engine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use qo::{ClaimRequest, Engine, Json, Operation, SubmitRequest, Task, TaskId};
use qo_remote::RemoteEngine;

const SUBMITTERS: usize = 8;
const WORKERS: usize = 16;
/// The number of tasks in one submit and in one claim.
const AT_ONCE: usize = 500;
const INPUT_BYTES: usize = 1_024;
/// How long a claim waits for tasks: in a load that ends, and in one that goes on.
const SHORT_WAIT: Duration = Duration::from_millis(100);
const LONG_WAIT: Duration = Duration::from_secs(1);
/// How often tasks are sent when the rate is given.
const TICK: Duration = Duration::from_millis(5);

/// A task with an input of 1 KiB.
pub(crate) fn request() -> SubmitRequest {
    let input = Json::parse(format!("\"{}\"", "x".repeat(INPUT_BYTES - 2))).unwrap();
    SubmitRequest::new("noop".parse().unwrap(), input)
}

/// Submits tasks.
pub(crate) async fn submit(engine: &RemoteEngine, count: usize) {
    let template = request();
    futures_util::stream::iter((0..count).step_by(AT_ONCE))
        .for_each_concurrent(SUBMITTERS, |from| {
            let batch = vec![template.clone(); AT_ONCE.min(count - from)];
            async move {
                for submitted in engine.submit_many(batch).await {
                    submitted.unwrap();
                }
            }
        })
        .await;
}

fn claim(number: usize, wait: Duration) -> ClaimRequest {
    let worker = format!("w-{number}").parse().unwrap();
    let mut claim = ClaimRequest::new(worker, vec!["noop".parse().unwrap()]);
    claim.wait_ms = wait.as_millis() as u64;
    claim.max = AT_ONCE;
    claim
}

async fn complete(engine: &RemoteEngine, tasks: &[Task]) {
    let completions = tasks
        .iter()
        .map(|task| {
            let lease = task.lease_id.unwrap();
            let output = Some(Json::null());
            (task.id, Operation::Complete { lease, output })
        })
        .collect();
    for completed in engine.act_many(completions).await {
        completed.unwrap();
    }
}

/// Submits and completes tasks. Returns how long it took, up to the last completion.
pub(crate) async fn load(engine: &RemoteEngine, count: usize) -> Duration {
    let began = Instant::now();
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let (engine, done) = (engine.clone(), Arc::clone(&done));
        workers.spawn(async move {
            let claim = claim(number, SHORT_WAIT);
            while done.load(Ordering::Relaxed) < count {
                let tasks = engine.claim(&claim).await.unwrap();
                complete(&engine, &tasks).await;
                done.fetch_add(tasks.len(), Ordering::Relaxed);
            }
        });
    }
    submit(engine, count).await;
    while done.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    // The last workers wait for work in vain. They are not interrupted: the nodes would keep the next tasks for them for seconds.
    while workers.join_next().await.is_some() {}
    took
}

/// Sends tasks at a rate, and returns how long each took from its submit to its completion, in milliseconds and sorted.
pub(crate) async fn latencies(engine: &RemoteEngine, rate: f64, last: Duration) -> Vec<f64> {
    let begun: Arc<Mutex<HashMap<TaskId, Instant>>> = Arc::default();
    let times: Arc<Mutex<Vec<f64>>> = Arc::default();
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let (engine, begun, times) = (engine.clone(), Arc::clone(&begun), Arc::clone(&times));
        workers.spawn(async move {
            let claim = claim(number, LONG_WAIT);
            loop {
                let tasks = engine.claim(&claim).await.unwrap();
                complete(&engine, &tasks).await;
                let now = Instant::now();
                let mut begun = begun.lock().unwrap();
                let mut times = times.lock().unwrap();
                for began in tasks.iter().filter_map(|task| begun.remove(&task.id)) {
                    times.push(now.duration_since(began).as_secs_f64() * 1e3);
                }
            }
        });
    }
    let started = Instant::now();
    let mut sent = 0_usize;
    let mut sending = tokio::task::JoinSet::new();
    while started.elapsed() < last {
        let due = (started.elapsed().as_secs_f64() * rate) as usize;
        while sent < due {
            let mut request = request();
            let id = TaskId::from_random(0xbe << 64 | sent as u128);
            request.id = Some(id);
            begun.lock().unwrap().insert(id, Instant::now());
            let engine = engine.clone();
            sending.spawn(async move { engine.submit(request).await.unwrap() });
            sent += 1;
        }
        tokio::time::sleep(TICK).await;
    }
    while sending.join_next().await.is_some() {}
    let waited = Instant::now();
    while times.lock().unwrap().len() < sent && waited.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    workers.abort_all();
    let mut times = std::mem::take(&mut *times.lock().unwrap());
    assert_eq!(times.len(), sent, "tasks were not completed in time");
    times.sort_by(f64::total_cmp);
    times
}

/// A percentile of sorted values.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}
