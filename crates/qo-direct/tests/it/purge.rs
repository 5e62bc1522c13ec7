//! Submits with an idempotency key that race a purge, and the window of a key.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectStore, PutMode, PutOptions, PutPayload, PutResult, Result,
};
use qo_core::task::IdempotencyScope;
use qo_core::{Json, Status, TaskId};
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{IdempotencyRequest, SubmitRequest, Submitted};
use qo_fixtures::{Bucket, LayeredStore, StoreLayer};
use qo_store::runtime::Runtime;

use crate::bucket::Engines as _;
use crate::maintenance::{claim, claim_all, complete};

type Interruption = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The request before which something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    ReadOfTask,
    CreateOfTask,
    /// The response to the creation of a task, which arrives twice. The refusal of its second copy is that response.
    RefusalOfCreate,
    /// The read of the key's record after the creation of the task.
    LastReadOfKey,
}

/// A store on which something happens once before a request.
struct InterruptedLayer {
    inner: Arc<dyn ObjectStore>,
    before: Before,
    has_created: Mutex<bool>,
    interruption: Mutex<Option<Interruption>>,
}

impl fmt::Debug for InterruptedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InterruptedLayer({:?})", self.before)
    }
}

impl InterruptedLayer {
    async fn interrupt(&self, at: Before) {
        if at != self.before {
            return;
        }
        let interruption = self.interruption.lock().unwrap().take();
        if let Some(interruption) = interruption {
            interruption.await;
        }
    }
}

#[async_trait]
impl StoreLayer for InterruptedLayer {
    fn inner(&self) -> &dyn ObjectStore {
        self.inner.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if path.as_ref().starts_with("tasks/") && opts.mode == PutMode::Create {
            self.interrupt(Before::CreateOfTask).await;
            *self.has_created.lock().unwrap() = true;
            if self.before == Before::RefusalOfCreate {
                let first = self.inner.put_opts(path, body.clone(), opts.clone());
                first.await?;
                let second = self.inner.put_opts(path, body, opts).await;
                self.interrupt(Before::RefusalOfCreate).await;
                return second;
            }
        }
        self.inner.put_opts(path, body, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if location.as_ref().starts_with("tasks/") {
            self.interrupt(Before::ReadOfTask).await;
        }
        let has_created = *self.has_created.lock().unwrap();
        if location.as_ref().starts_with("keys/") && has_created {
            self.interrupt(Before::LastReadOfKey).await;
        }
        self.inner.get_opts(location, options).await
    }
}

fn interrupted(
    bucket: &Bucket,
    before: Before,
    interruption: impl Future<Output = ()> + Send + 'static,
) -> DirectEngine {
    bucket.engine_on(Arc::new(LayeredStore(InterruptedLayer {
        inner: bucket.counted(),
        before,
        has_created: Mutex::default(),
        interruption: Mutex::new(Some(Box::pin(interruption))),
    })))
}

fn keyed(window_ms: Option<u64>) -> SubmitRequest {
    let mut request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
    request.idempotency = Some(IdempotencyRequest {
        key: "order-7".parse().unwrap(),
        scope: IdempotencyScope::Queue,
        window_ms,
    });
    request
}

/// An input that has its own object.
fn large(mark: &str) -> Json {
    Json::parse(format!("\"{}\"", mark.repeat(100_000))).unwrap()
}

/// Runs the only task, and purges it.
async fn run_and_purge(engine: &DirectEngine, id: TaskId) {
    let task = claim(engine).await;
    assert_eq!(task.id, id);
    complete(engine, &task).await;
    engine.purge(id).await.unwrap();
}

/// One more submit finds the task of the last one, and no other task exists.
async fn assert_only_task(bucket: &Bucket, last: &Submitted) {
    let again = bucket.engine().submit(keyed(None)).await.unwrap();
    assert_eq!((again.task.id, again.duplicate), (last.task.id, true));
    let tasks = bucket.keys("tasks").await;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    let claimed = claim_all(&bucket.engine()).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_purge_between_the_reads_of_key_and_task_leaves_one_task() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let first = engine.submit(keyed(None)).await.unwrap().task.id;
    let slow = interrupted(&bucket, Before::ReadOfTask, {
        let engine = engine.clone();
        async move { run_and_purge(&engine, first).await }
    });
    let second = slow.submit(keyed(None)).await.unwrap();
    assert_ne!(second.task.id, first, "the purged task came back");
    assert_only_task(&bucket, &second).await;
}

#[tokio::test(start_paused = true)]
async fn a_submit_of_an_id_that_is_purged_at_that_moment_creates_the_task() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let id = TaskId::from_random(7);
    let request = || {
        let mut request = SubmitRequest::new("noop".parse().unwrap(), large("x"));
        request.id = Some(id);
        request
    };
    engine.submit(request()).await.unwrap();
    let task = claim(&engine).await;
    complete(&engine, &task).await;
    let slow = interrupted(&bucket, Before::ReadOfTask, {
        let engine = engine.clone();
        async move { engine.purge(id).await.unwrap() }
    });
    let again = slow.submit(request()).await.unwrap();
    assert!(!again.duplicate);
    let input = engine.input(&again.task).await.unwrap();
    assert_eq!(input.as_str(), large("x").as_str());
    assert_eq!(claim(&bucket.engine()).await.id, id);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_purged_before_its_submit_has_a_response_is_not_created_again() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let slow = interrupted(&bucket, Before::RefusalOfCreate, {
        let (engine, objects) = (engine.clone(), bucket.objects());
        async move {
            let stored = objects.list(Some(&Path::from("tasks"))).next().await;
            let name = stored.unwrap().unwrap().location;
            let id = name.filename().unwrap().trim_end_matches(".json");
            let id = id.parse().unwrap();
            engine.cancel(id, None).await.unwrap();
            engine.purge(id).await.unwrap();
        }
    });
    let request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
    let submitted = slow.submit(request).await.unwrap();
    assert!(!submitted.duplicate);
    assert_eq!(bucket.keys("tasks").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_pauses_before_its_create_does_not_bring_a_purged_task_back() {
    let bucket = Bucket::new();
    let other = bucket.engine();
    let slow = interrupted(&bucket, Before::CreateOfTask, async move {
        let first = other.submit(keyed(None)).await.unwrap();
        assert!(!first.duplicate, "it creates the task of the slow submit");
        run_and_purge(&other, first.task.id).await;
    });
    let second = slow.submit(keyed(None)).await.unwrap();
    assert!(!second.duplicate);
    assert_only_task(&bucket, &second).await;
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_deletes_a_purged_task_that_a_dead_submit_brought_back() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let first = engine.submit(keyed(None)).await.unwrap().task.id;
    // The submit creates the purged task again and dies before it reads the key a second time.
    let dying = bucket.engine_on(Arc::new(LayeredStore(InterruptedLayer {
        inner: Arc::new(LayeredStore(InterruptedLayer {
            inner: bucket.counted(),
            before: Before::ReadOfTask,
            has_created: Mutex::default(),
            interruption: Mutex::new(Some(Box::pin({
                let engine = engine.clone();
                async move { run_and_purge(&engine, first).await }
            }))),
        })),
        before: Before::LastReadOfKey,
        has_created: Mutex::default(),
        interruption: Mutex::new(Some(Box::pin(std::future::pending()))),
    })));
    let submit = dying.submit(keyed(None));
    let died = tokio::time::timeout(Duration::from_secs(1), submit).await;
    assert!(died.is_err(), "{died:?}");
    assert_eq!(bucket.keys("tasks").await.len(), 1);
    assert_eq!(claim_all(&bucket.engine()).await, []);

    bucket.runtime.pass_seconds(61).await;
    bucket.engine().sweep_step().await.unwrap();
    assert_eq!(bucket.keys("tasks").await, Vec::<String>::new());
    let second = bucket.engine().submit(keyed(None)).await.unwrap();
    assert_only_task(&bucket, &second).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_created_late_holds_its_key_no_longer_than_the_keys_record() {
    let bucket = Bucket::new();
    let runtime = bucket.runtime.clone();
    let slow = interrupted(&bucket, Before::CreateOfTask, async move {
        runtime.sleep(Duration::from_secs(20)).await;
    });
    let until = bucket.now().plus_millis(10_000);
    let late = slow.submit(keyed(Some(10_000))).await.unwrap().task;
    assert_eq!(late.idempotency_until, Some(until));
    let second = bucket.engine().submit(keyed(None)).await.unwrap();
    assert_ne!(second.task.id, late.id, "the window has ended");
}

#[tokio::test(start_paused = true)]
async fn fields_of_later_versions_in_the_record_of_a_key_survive() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let first = engine.submit(keyed(None)).await.unwrap().task.id;
    let key = bucket.keys("keys").await.remove(0);
    let written = String::from_utf8(bucket.get(&key).await).unwrap();
    let with_more = written.replacen('{', r#"{"colour":"blue","#, 1);
    bucket.put(&key, &with_more).await;
    run_and_purge(&engine, first).await;
    let released = String::from_utf8(bucket.get(&key).await).unwrap();
    assert!(released.contains(r#""colour":"blue""#), "{released}");
    engine.submit(keyed(None)).await.unwrap();
    let taken = String::from_utf8(bucket.get(&key).await).unwrap();
    assert!(taken.contains(r#""colour":"blue""#), "{taken}");
    assert_ne!(taken, released);
}

#[tokio::test(start_paused = true)]
async fn a_task_is_not_purged_while_the_record_of_its_key_cannot_be_read() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let id = engine.submit(keyed(None)).await.unwrap().task.id;
    let key = bucket.keys("keys").await.remove(0);
    let written = String::from_utf8(bucket.get(&key).await).unwrap();
    let unreadable = written.replacen("task_id", "holder", 1);
    bucket.put(&key, &unreadable).await;
    let task = claim(&engine).await;
    complete(&engine, &task).await;
    let error = engine.purge(id).await.unwrap_err().to_string();
    assert!(error.contains(&key), "{error}");
    assert_eq!(engine.get(id).await.unwrap().status, Status::Archived);
    assert_eq!(bucket.get(&key).await, unreadable.as_bytes());
    // Once the record is repaired, the purge can be repeated.
    bucket.put(&key, &written).await;
    engine.purge(id).await.unwrap();
    assert!(engine.get(id).await.unwrap_err().is_not_found());
}
