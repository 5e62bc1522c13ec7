//! Many tasks through one or several workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_core::Json;
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, WorkerInfo};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::{CountingStore, Delay, LatencyStore, Operation, Prices};
use qo_store::{SqliteStore, StoreClient};

use crate::features::Feature;

#[derive(Clone, Copy)]
pub(crate) enum Backing {
    Memory,
    Sqlite,
}

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    pub(crate) workers: usize,
    pub(crate) slots: usize,
    pub(crate) latency: Option<Duration>,
    /// The number of finished tasks in the bucket at the start.
    pub(crate) finished: usize,
    pub(crate) backing: Backing,
    pub(crate) feature: Feature,
}

pub(crate) struct Figures {
    pub(crate) puts: f64,
    pub(crate) gets: f64,
    pub(crate) lists: f64,
    pub(crate) deletes: f64,
    /// The share of claims that lost a race.
    pub(crate) lost: f64,
    pub(crate) dollars_per_million: f64,
    /// Tasks a second, from the first claim to the last completion.
    pub(crate) rate: f64,
    /// Tasks a second, from the first submit to the last completion.
    pub(crate) overall_rate: f64,
    pub(crate) submit_rate: f64,
}

pub(crate) fn engine(
    objects: Arc<dyn ObjectStore>,
    runtime: &Arc<dyn Runtime>,
    config: DirectConfig,
) -> DirectEngine {
    let client = StoreClient::new(
        objects,
        Arc::new(StoreClock::new()),
        Arc::clone(runtime),
        ClientConfig::default(),
    );
    DirectEngine::new(client, None, Arc::clone(runtime), config)
}

pub(crate) fn request(bytes: usize) -> SubmitRequest {
    let input = Json::parse(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
    SubmitRequest::new("noop".parse().unwrap(), input)
}

impl Load {
    pub(crate) async fn run(self) -> Figures {
        let runtime = TokioRuntime::shared();
        let directory = tempfile::tempdir().unwrap();
        let (bottom, config): (Arc<dyn ObjectStore>, _) = match self.backing {
            Backing::Memory => (Arc::new(InMemory::new()), DirectConfig::default()),
            Backing::Sqlite => {
                let store =
                    SqliteStore::open(&directory.path().join("qo.db"), Arc::clone(&runtime))
                        .unwrap();
                (Arc::new(store), DirectConfig::local())
            }
        };
        if self.finished > 0 {
            // Created without latency, because the preparation is not measured.
            let maker = engine(Arc::clone(&bottom), &runtime, DirectConfig::local());
            submit(&maker, self.finished).await;
            work(std::slice::from_ref(&maker), 256, self.finished).await;
            maker.close().await;
        }
        let maker = engine(Arc::clone(&bottom), &runtime, DirectConfig::local());
        self.feature.prepare(&maker).await;
        let slowed: Arc<dyn ObjectStore> = match self.latency {
            None => bottom,
            Some(latency) => Arc::new(LatencyStore::new(
                bottom,
                Arc::clone(&runtime),
                Delay::Fixed(latency),
                1,
            )),
        };
        let counting = Arc::new(CountingStore::new(slowed));
        let objects: Arc<dyn ObjectStore> = Arc::<CountingStore>::clone(&counting);

        let started = Instant::now();
        let producer = engine(Arc::clone(&objects), &runtime, config.clone());
        if self.feature == Feature::Batched {
            submit(&producer, self.tasks).await;
        } else {
            self.feature.submit(&producer, self.tasks).await;
        }
        let submitted = started.elapsed();
        let workers: Vec<_> = (0..self.workers)
            .map(|_| engine(Arc::clone(&objects), &runtime, config.clone()))
            .collect();
        let working = Instant::now();
        work(&workers, self.slots, self.tasks).await;
        let worked = working.elapsed();
        let overall = started.elapsed();
        for engine in workers.iter().chain([&producer]) {
            engine.close().await;
        }

        let counts = counting.counts();
        let tasks = self.tasks as f64;
        let of = |operations: &[Operation]| {
            operations
                .iter()
                .map(|operation| counts.total(*operation).requests as f64)
                .sum::<f64>()
                / tasks
        };
        let swaps = counts.of("tasks", Operation::Swap);
        Figures {
            puts: of(&[Operation::Put, Operation::Create, Operation::Swap]),
            gets: of(&[Operation::Get, Operation::Head]),
            lists: of(&[Operation::List]),
            deletes: of(&[Operation::Delete]),
            lost: swaps.refused as f64 / (tasks + swaps.refused as f64),
            dollars_per_million: counts.dollars(&Prices::default()) / tasks * 1e6,
            rate: tasks / worked.as_secs_f64(),
            overall_rate: tasks / overall.as_secs_f64(),
            submit_rate: tasks / submitted.as_secs_f64(),
        }
    }
}

async fn submit(engine: &DirectEngine, count: usize) {
    for _ in 0..count.div_ceil(10_000) {
        let batch = (0..count.min(10_000)).map(|_| request(1_024)).collect();
        for submitted in engine.submit_many(batch).await {
            submitted.unwrap();
        }
    }
}

/// Lets the workers work until `count` tasks are completed.
async fn work(engines: &[DirectEngine], slots: usize, count: usize) {
    let done = Arc::new(AtomicUsize::new(0));
    let mut running = Vec::new();
    for (number, engine) in engines.iter().enumerate() {
        let worker: qo_core::WorkerId = format!("w-{number}").parse().unwrap();
        engine
            .heartbeat(&WorkerInfo::new(worker, engine.now()))
            .await
            .unwrap();
    }
    for (number, engine) in engines.iter().enumerate() {
        for _ in 0..slots {
            let mut request = ClaimRequest::new(
                format!("w-{number}").parse().unwrap(),
                vec!["noop".parse().unwrap()],
            );
            request.wait_ms = 1_000;
            let (engine, done) = (engine.clone(), Arc::clone(&done));
            running.push(tokio::spawn(async move {
                while done.load(Ordering::Relaxed) < count {
                    for task in engine.claim(&request).await.unwrap() {
                        let lease = task.lease_id.unwrap();
                        engine
                            .complete(task.id, lease, Some(Json::null()))
                            .await
                            .unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
    }
    // The last slots wait for work in vain. The measurement ends with the last completion.
    while done.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for slot in running {
        slot.abort();
    }
}
