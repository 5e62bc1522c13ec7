//! The worker: the result of every kind of attempt.

mod attempts;
mod batches;
mod budget;
mod building;
mod claiming;
mod drain;
mod examples;
mod hooks;
mod leases;
mod outages;
mod slow_store;
mod stop_requests;
mod stopping;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qo::testing::TestClock;
use qo::{Context, DirectConfig, DirectEngine, OpenOptions, Queue, Task, TaskError, TaskInput};
use qo_store::client::{ClientConfig, RetryConfig};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::wrap::{CountingStore, FaultPlan, FaultStore};
use qo_store::{Store, StoreClient, open};
use tokio::sync::Notify;

use crate::test_queue::WAIT_MAX;

/// A job that tells its handler what to do.
#[derive(serde::Serialize, serde::Deserialize)]
struct Job {
    name: String,
}

impl TaskInput for Job {
    const TYPE: &'static str = "job";
    const ALIASES: &'static [&'static str] = &["old_job"];
}

fn job(name: &str) -> Job {
    Job {
        name: name.to_owned(),
    }
}

async fn submit(queue: &Queue, name: &str) -> Task {
    let task = queue.task(Job::TYPE, &job(name)).unwrap();
    task.submit().await.unwrap().task
}

async fn greet(job: Job, _: Context) -> Result<String, TaskError> {
    Ok(format!("hello {}", job.name))
}

/// Lets the clock run until a future is ready.
async fn while_time_passes<T>(clock: &TestClock, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    // Bounded, so that a test that would never end fails: a day of the clock's time.
    for _ in 0..1_000_000 {
        tokio::select! {
            biased;
            result = &mut future => return result,
            () = tokio::task::yield_now() => clock.advance(Duration::from_millis(50)),
        }
    }
    panic!("still not ready after a long time");
}

/// Waits with a timeout.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(WAIT_MAX, future).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// A signal between handlers and tests.
#[derive(Clone, Default)]
struct Gate {
    opened: Arc<Notify>,
    count: Arc<AtomicUsize>,
}

impl Gate {
    fn open(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    fn opened(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until it was opened this many times.
    async fn wait_for(&self, count: usize) {
        loop {
            let notified = self.opened.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            if self.opened() >= count {
                return;
            }
            notified.await;
        }
    }
}

/// A bucket in memory that several processes share, each with its own client.
struct SharedBucket {
    store: Store,
    runtime: Arc<dyn Runtime>,
}

impl SharedBucket {
    fn new() -> Self {
        let runtime = TokioRuntime::shared();
        let store = open("memory:", &OpenOptions::new(Arc::clone(&runtime))).unwrap();
        Self { store, runtime }
    }

    fn queue(&self) -> Queue {
        self.queue_on(self.store.clone())
    }

    fn queue_on(&self, store: Store) -> Queue {
        self.queue_with(store, DirectConfig::local().payload_max_bytes)
    }

    fn queue_with(&self, store: Store, payload_max_bytes: u64) -> Queue {
        let mut retry = RetryConfig::default();
        retry.budget = Duration::from_millis(400);
        retry.request_timeout = Duration::from_millis(200);
        retry.settle = Duration::from_millis(200);
        let mut client = ClientConfig::default();
        client.retry = retry;
        let client = StoreClient::new(
            Arc::clone(&store.objects),
            Arc::clone(&store.clock),
            Arc::clone(&self.runtime),
            client,
        );
        let mut config = DirectConfig::local();
        config.lease_margin_ms = 200;
        config.payload_max_bytes = payload_max_bytes;
        let engine = DirectEngine::new(client, None, Arc::clone(&self.runtime), config);
        Queue::direct(engine, Arc::clone(&self.runtime), store, BTreeMap::new())
    }

    /// A queue with a connection that a test can break.
    fn breakable(&self) -> (Queue, Arc<FaultStore>) {
        let faults = Arc::new(FaultStore::new(
            Arc::clone(&self.store.objects),
            Arc::clone(&self.runtime),
            FaultPlan::none(),
            1,
        ));
        let mut store = self.store.clone();
        store.objects = Arc::clone(&faults) as _;
        (self.queue_on(store), faults)
    }

    /// A queue with a connection that counts requests.
    fn counted(&self) -> (Queue, Arc<CountingStore>) {
        let counting = Arc::new(CountingStore::new(Arc::clone(&self.store.objects)));
        let mut store = self.store.clone();
        store.objects = Arc::clone(&counting) as _;
        (self.queue_on(store), counting)
    }
}
