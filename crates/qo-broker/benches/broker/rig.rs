//! A store with the latency of S3 whose requests are counted, and a load on the engine above it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_broker::SlateConfig;
use qo_core::{Json, Task, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, Operation};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::{CountingStore, Delay, LatencyStore};

/// The round-trip time of a request.
pub(crate) const LATENCY: Duration = Duration::from_millis(30);
/// The number of tasks in one submit.
const SUBMITS_AT_ONCE: usize = 500;
/// The most tasks that one claim takes.
const CLAIMED_AT_ONCE: usize = 500;

/// The database rests after this long without requests: it polls for work every 15 seconds.
const QUIET: Duration = Duration::from_secs(20);
/// The number of requests a second of a resting database.
const POLLS_A_SECOND: u64 = 6;
/// How long to wait for the database.
const REST_MAX: Duration = Duration::from_mins(3);

pub(crate) struct BenchRig {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) counting: Arc<CountingStore>,
}

impl BenchRig {
    pub(crate) fn new(bottom: Arc<dyn ObjectStore>, latency: Option<Duration>) -> Self {
        let runtime = TokioRuntime::shared();
        let slowed: Arc<dyn ObjectStore> = match latency {
            None => bottom,
            Some(latency) => Arc::new(LatencyStore::new(
                bottom,
                Arc::clone(&runtime),
                Delay::Fixed(latency),
                1,
            )),
        };
        Self {
            runtime,
            counting: Arc::new(CountingStore::new(slowed)),
        }
    }

    pub(crate) async fn slate(&self) -> BrokerEngine {
        BrokerEngine::slate(
            Arc::<CountingStore>::clone(&self.counting),
            Arc::new(StoreClock::new()),
            Arc::clone(&self.runtime),
            ClientConfig::default(),
            SlateConfig::default(),
        )
        .await
        .unwrap()
    }
}

impl BenchRig {
    /// Waits until the database has compacted earlier writes, so that they do not affect the next measurement. Returns how long that took.
    pub(crate) async fn rest(&self) -> Duration {
        let started = Instant::now();
        let mut busy = Instant::now();
        let mut before = self.counting.counts().requests();
        while busy.elapsed() < QUIET && started.elapsed() < REST_MAX {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.counting.counts().requests();
            // A few are polls.
            if now - before > POLLS_A_SECOND {
                busy = Instant::now();
            }
            before = now;
        }
        busy.duration_since(started)
    }
}

pub(crate) fn request(bytes: usize) -> SubmitRequest {
    let input = Json::parse(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
    SubmitRequest::new("noop".parse().unwrap(), input)
}

/// Submits tasks, several batches at once.
pub(crate) async fn submit(engine: &BrokerEngine, count: usize, at_once: usize) {
    let batches = count.div_ceil(SUBMITS_AT_ONCE);
    futures_util::stream::iter(0..batches)
        .for_each_concurrent(at_once, |_| async {
            let batch = (0..SUBMITS_AT_ONCE).map(|_| request(1_024)).collect();
            for submitted in engine.submit_many(batch).await {
                submitted.unwrap();
            }
        })
        .await;
}

/// Claims and completes in batches until `count` tasks are done.
pub(crate) async fn work(engine: &BrokerEngine, workers: usize, count: usize) {
    let done = Arc::new(AtomicUsize::new(0));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..workers {
        let mut claim = ClaimRequest::new(
            format!("w-{number}").parse().unwrap(),
            vec!["noop".parse().unwrap()],
        );
        claim.wait_ms = 1_000;
        claim.max = CLAIMED_AT_ONCE;
        let (engine, done) = (engine.clone(), Arc::clone(&done));
        running.spawn(async move {
            while done.load(Ordering::Relaxed) < count {
                let tasks = engine.claim(&claim).await.unwrap();
                for completed in engine.act_many(all_completed(&tasks)).await {
                    completed.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    // The last workers wait for work in vain. The measurement ends with the last completion.
    while done.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort_all();
}

/// The CPU time of the process, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in parentheses and may contain spaces.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|tick| tick.parse::<f64>().ok()).sum();
    // Linux reports it in hundredths of a second on every machine.
    ticks / 100.0
}

/// The completions of claimed tasks.
pub(crate) fn all_completed(tasks: &[Task]) -> Vec<(TaskId, Operation)> {
    let complete = |task: &Task| {
        let operation = Operation::Complete {
            lease: task.lease_id.unwrap(),
            output: Some(Json::null()),
        };
        (task.id, operation)
    };
    tasks.iter().map(complete).collect()
}

/// The resident memory of the process, in GiB.
pub(crate) fn memory_gib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0.0);
    kib / 1024.0 / 1024.0
}
