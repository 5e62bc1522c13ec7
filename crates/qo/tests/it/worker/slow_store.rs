//! A store that holds or refuses single requests, and handlers that block their threads.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectStore, PutMode, PutOptions, PutPayload, PutResult, Result,
};
use qo::{Context, DirectConfig, DirectEngine, Queue, Status, TaskError, Worker};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::wrap::layer::{LayeredStore, StoreLayer};
use tokio::sync::Notify;

use super::{Gate, Job, SharedBucket, job, soon, submit};
use crate::test_queue::WAIT_MAX;

/// Holds the swaps of one task until it is told to let them go.
#[derive(Clone)]
struct HeldSwaps {
    inner: Arc<dyn ObjectStore>,
    task: Arc<Mutex<String>>,
    go: Arc<Notify>,
}

impl fmt::Debug for HeldSwaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldSwaps")
    }
}

#[async_trait]
impl StoreLayer for HeldSwaps {
    fn inner(&self) -> &dyn ObjectStore {
        self.inner.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let is_held = {
            let task = self.task.lock().unwrap();
            !task.is_empty() && path.as_ref().contains(task.as_str())
        };
        if is_held && matches!(opts.mode, PutMode::Update(_)) {
            self.go.notified().await;
        }
        self.inner.put_opts(path, body, opts).await
    }
}

/// A queue whose requests are given as much time as they like.
fn patient_queue(bucket: &SharedBucket, objects: Arc<dyn ObjectStore>) -> Queue {
    let mut store = bucket.store.clone();
    store.objects = objects;
    let mut config = ClientConfig::default();
    config.retry.request_timeout = Duration::from_hours(1);
    config.retry.budget = Duration::from_hours(2);
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(&bucket.runtime),
        config,
    );
    let runtime = Arc::clone(&bucket.runtime);
    let engine = DirectEngine::new(client, None, Arc::clone(&runtime), DirectConfig::local());
    Queue::direct(engine, runtime, store, BTreeMap::new())
}

#[tokio::test]
async fn a_hung_claim_does_not_hold_the_tasks_claimed_with_it() {
    let bucket = SharedBucket::new();
    let swaps = HeldSwaps {
        inner: Arc::clone(&bucket.store.objects),
        task: Arc::default(),
        go: Arc::default(),
    };
    let queue = patient_queue(&bucket, Arc::new(LayeredStore(swaps.clone())));
    let mut tasks = Vec::new();
    for number in 0..5 {
        tasks.push(submit(&queue, &number.to_string()).await.id);
    }
    *swaps.task.lock().unwrap() = tasks[2].to_string();
    let done = Gate::default();
    let counted = done.clone();
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(move |_: Job, _: Context| {
            let done = counted.clone();
            async move {
                done.open();
                Ok::<_, TaskError>(())
            }
        })
        .concurrency(5)
        .build()
        .unwrap()
        .spawn();
    soon("the tasks whose claims were answered", done.wait_for(4)).await;
    assert_eq!(done.opened(), 4, "the fifth claim is still held");
    swaps.task.lock().unwrap().clear();
    swaps.go.notify_waiters();
    soon("the last task", done.wait_for(5)).await;
    let report = worker.stop().await.unwrap();
    assert_eq!((report.completed, report.attempts()), (5, 5));
}

/// Refuses the first reads of payloads, as a store does while a change of its permissions spreads.
struct DeniedPayloads {
    inner: Arc<dyn ObjectStore>,
    left: AtomicUsize,
}

impl fmt::Debug for DeniedPayloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeniedPayloads")
    }
}

#[async_trait]
impl StoreLayer for DeniedPayloads {
    fn inner(&self) -> &dyn ObjectStore {
        self.inner.as_ref()
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let take = |left: usize| left.checked_sub(1);
        if location.as_ref().starts_with("data/")
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_ok()
        {
            return Err(object_store::Error::PermissionDenied {
                path: location.to_string(),
                source: "not yet".into(),
            });
        }
        self.inner.get_opts(location, options).await
    }
}

#[tokio::test]
async fn an_input_that_is_denied_for_a_while_is_read_later() {
    let bucket = SharedBucket::new();
    let denied = DeniedPayloads {
        inner: Arc::clone(&bucket.store.objects),
        left: AtomicUsize::new(3),
    };
    let queue = patient_queue(&bucket, Arc::new(LayeredStore(denied)));
    let large = job(&"x".repeat(200_000));
    let task = queue.task("job", &large).unwrap().retries(0);
    let task = task.submit().await.unwrap().task;
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(super::greet)
        .build()
        .unwrap()
        .spawn();
    let done = queue.wait(task.id, WAIT_MAX).await.unwrap();
    assert_eq!(
        (done.status, done.attempt),
        (Status::Completed, 1),
        "{done:?}"
    );
    worker.stop().await.unwrap();
}

/// Answers reads from a background task, as an HTTP client does.
#[derive(Debug)]
struct AnsweredInBackground {
    inner: Arc<dyn ObjectStore>,
}

#[async_trait]
impl StoreLayer for AnsweredInBackground {
    fn inner(&self) -> &dyn ObjectStore {
        self.inner.as_ref()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the response comes from another task, as with a real client"
    )]
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (inner, location) = (Arc::clone(&self.inner), location.clone());
        let answer = tokio::spawn(async move { inner.get_opts(&location, options).await });
        answer.await.map_err(object_store::Error::from)?
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until a future is ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = TaskContext::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_can_use_the_queue() {
    let bucket = SharedBucket::new();
    let objects = AnsweredInBackground {
        inner: Arc::clone(&bucket.store.objects),
    };
    let queue = patient_queue(&bucket, Arc::new(LayeredStore(objects)));
    let handlers = 32;
    for number in 0..handlers {
        submit(&queue, &number.to_string()).await;
    }
    let (begun, done) = (Gate::default(), Gate::default());
    let (starts, ends) = (begun.clone(), done.clone());
    let worker = Worker::builder(queue.clone())
        .handle::<Job>(move |_: Job, context: Context| {
            let (starts, ends) = (starts.clone(), ends.clone());
            async move {
                starts.open();
                // No thread is left that could poll the connections of a client.
                thread::sleep(Duration::from_millis(100));
                let task =
                    block_on(context.queue().get(context.id())).map_err(TaskError::retryable)?;
                block_on(context.queue().wait(task.id, Duration::from_millis(10))).unwrap_err();
                ends.open();
                Ok::<_, TaskError>(())
            }
        })
        .concurrency(handlers)
        .build()
        .unwrap()
        .spawn();
    soon("all handlers", done.wait_for(handlers)).await;
    assert_eq!(begun.opened(), handlers);
    let report = worker.stop().await.unwrap();
    assert_eq!(report.completed, handlers as u64);
}
