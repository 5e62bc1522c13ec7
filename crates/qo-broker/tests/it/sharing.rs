//! Processes that share one JSON object get equal shares of it. All of this runs in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload, PutResult, Result};
use qo_broker::{BrokerEngine, JsonConfig};
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_fixtures::{LayeredStore, PausableRuntime, StoreLayer};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use qo_store::wrap::{Delay, LatencyStore};

use super::engines::{claim_request, job};

/// The round-trip time of a request.
const LATENCY: Duration = Duration::from_millis(30);
/// How many tasks a worker runs at once, and how long each takes.
const SLOTS: usize = 10;
const WORK: Duration = Duration::from_millis(5);

/// Counts the writes that succeed. Refuses all writes to an existing object if `refuses`.
#[derive(Debug, Default)]
struct Writes {
    objects: InMemory,
    succeeded: AtomicUsize,
    refuses: bool,
}

#[async_trait::async_trait]
impl StoreLayer for Writes {
    fn inner(&self) -> &dyn ObjectStore {
        &self.objects
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if self.refuses && matches!(opts.mode, PutMode::Update(_)) {
            return Err(object_store::Error::Precondition {
                path: path.to_string(),
                source: "another process wrote first".into(),
            });
        }
        let written = self.objects.put_opts(path, body, opts).await?;
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        Ok(written)
    }
}

struct Object {
    store: Arc<LayeredStore<Writes>>,
    runtime: Arc<PausableRuntime>,
}

impl Object {
    fn new(refuses: bool) -> Self {
        Self {
            store: Arc::new(LayeredStore(Writes {
                refuses,
                ..Writes::default()
            })),
            runtime: Arc::new(PausableRuntime::new(7)),
        }
    }

    /// The engine of another process.
    fn process(&self, seed: u64) -> BrokerEngine {
        let runtime: Arc<dyn Runtime> = self.runtime.beside(seed, 0);
        let slow = LatencyStore::new(
            self.store.clone(),
            Arc::clone(&runtime),
            Delay::Uniform {
                low: LATENCY.mul_f64(0.8),
                high: LATENCY.mul_f64(1.2),
            },
            seed,
        );
        BrokerEngine::json(
            Arc::new(slow),
            Arc::new(StoreClock::new()),
            runtime,
            ClientConfig::default(),
            JsonConfig::default(),
        )
    }

    fn writes(&self) -> usize {
        self.store.0.succeeded.load(Ordering::Relaxed)
    }

    async fn fill(&self, tasks: usize) {
        let engine = self.process(1);
        let requests = (0..tasks).map(|_| job("a")).collect();
        for submitted in engine.submit_many(requests).await {
            submitted.unwrap();
        }
        engine.close().await;
    }

    /// Works until there is nothing left, and returns how many tasks it did.
    async fn work(&self, engine: &BrokerEngine) -> usize {
        let mut done = 0;
        loop {
            let claim = claim_request("a", SLOTS, 2_000);
            let tasks = engine.claim(&claim).await.unwrap();
            if tasks.is_empty() {
                return done;
            }
            done += tasks.len();
            join_all(tasks.into_iter().map(|task| async move {
                self.runtime.sleep(WORK).await;
                let lease = task.lease_id.unwrap();
                engine.complete(task.id, lease, None).await.unwrap();
            }))
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_workers_do_equal_shares() {
    const TASKS: usize = 600;
    let object = Object::new(false);
    object.fill(TASKS).await;
    let (one, other) = (object.process(11), object.process(12));
    let (one, other) = join(object.work(&one), object.work(&other)).await;
    assert_eq!(one + other, TASKS);
    let least = one.min(other) * 100 / TASKS;
    assert!(least >= 40, "{one} and {other}");
}

#[tokio::test(start_paused = true)]
async fn a_submit_beside_two_workers_takes_its_turn() {
    const TASKS: usize = 900;
    let object = Object::new(false);
    object.fill(TASKS).await;
    let (one, other, third) = (object.process(11), object.process(12), object.process(13));
    let submits = async {
        let mut waited = Vec::new();
        for _ in 0..10 {
            object.runtime.sleep(Duration::from_millis(500)).await;
            let before = object.writes();
            third.submit(job("b")).await.unwrap();
            waited.push(object.writes() - before);
        }
        waited
    };
    let (shares, waited) = join(join(object.work(&one), object.work(&other)), submits).await;
    assert_eq!(shares.0 + shares.1, TASKS);
    assert!(waited.iter().all(|writes| *writes <= 10), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_never_gets_its_turn_names_no_task() {
    let object = Object::new(true);
    let engine = object.process(11);
    engine.submit(job("a")).await.unwrap();
    let id = qo_core::TaskId::from_random(7);
    let request = SubmitRequest {
        id: Some(id),
        ..job("a")
    };
    let error = engine.submit(request).await.unwrap_err();
    assert!(!error.to_string().contains(&id.to_string()), "{error}");
    assert!(error.to_string().contains("queue"), "{error}");
}
