//! Claims promote scheduled tasks on the way, and neither wait for that nor fail with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use object_store::path::Path;
use object_store::{Error, ObjectStore, PutOptions, PutPayload, PutResult, Result};
use qo_core::{Json, TaskId};
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, When};
use qo_fixtures::{Bucket, LayeredStore, StoreLayer};
use qo_store::runtime::Runtime;
use qo_store::wrap::Operation;

use crate::bucket::Engines as _;

const WORKS: u8 = 0;
const HANGS: u8 = 1;
const FAILS: u8 = 2;

/// A store whose writes of ready entries can hang or fail.
struct ReadyEntries {
    objects: Arc<dyn ObjectStore>,
    mode: Arc<AtomicU8>,
}

impl std::fmt::Debug for ReadyEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadyEntries")
    }
}

#[async_trait::async_trait]
impl StoreLayer for ReadyEntries {
    fn inner(&self) -> &dyn ObjectStore {
        self.objects.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if path.as_ref().starts_with("ready/") {
            match self.mode.load(Ordering::Relaxed) {
                HANGS => return std::future::pending().await,
                FAILS => {
                    return Err(Error::PermissionDenied {
                        path: path.to_string(),
                        source: "no ready entries today".into(),
                    });
                }
                _ => {}
            }
        }
        self.objects.put_opts(path, body, opts).await
    }
}

struct Scene {
    bucket: Bucket,
    engine: DirectEngine,
    mode: Arc<AtomicU8>,
    delayed: TaskId,
}

fn claiming(wait_ms: u64) -> ClaimRequest {
    ClaimRequest {
        wait_ms,
        max: 4,
        ..ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()])
    }
}

impl Scene {
    /// A process that knows of a scheduled task which is due, in a store that then behaves as given.
    async fn with_due_task(mode_then: u8) -> Self {
        let bucket = Bucket::new();
        let mode = Arc::new(AtomicU8::new(WORKS));
        let engine = bucket.engine_on(Arc::new(LayeredStore(ReadyEntries {
            objects: bucket.counted(),
            mode: mode.clone(),
        })));
        // The first claim lists what is scheduled.
        assert!(engine.claim(&claiming(0)).await.unwrap().is_empty());
        let delayed = SubmitRequest {
            available: When::InMillis(2_000),
            ..SubmitRequest::new("noop".parse().unwrap(), Json::null())
        };
        let delayed = engine.submit(delayed).await.unwrap().task.id;
        bucket.runtime.pass_seconds(5).await;
        mode.store(mode_then, Ordering::Relaxed);
        Self {
            bucket,
            engine,
            mode,
            delayed,
        }
    }

    /// Submits a task in another process, whose requests work.
    async fn submit_ready(&self) -> TaskId {
        let request = SubmitRequest::new("noop".parse().unwrap(), Json::null());
        let submitted = self.bucket.engine().submit(request).await;
        submitted.unwrap().task.id
    }

    fn later_lists(&self) -> u64 {
        self.bucket.counts().of("later", Operation::List).requests
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_a_ready_task_while_a_promotion_hangs() {
    let scene = Scene::with_due_task(HANGS).await;
    let ready = scene.submit_ready().await;
    let began = scene.bucket.runtime.monotonic();
    let claimed = scene.engine.claim(&claiming(20_000)).await.unwrap();
    let took = scene.bucket.runtime.monotonic().saturating_sub(began);
    let ids: Vec<_> = claimed.iter().map(|task| task.id).collect();
    assert_eq!(ids, [ready]);
    assert!(took <= Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_a_ready_task_while_promotions_fail() {
    let scene = Scene::with_due_task(FAILS).await;
    let ready = scene.submit_ready().await;
    let claimed = scene.engine.claim(&claiming(20_000)).await.unwrap();
    let ids: Vec<_> = claimed.iter().map(|task| task.id).collect();
    assert_eq!(ids, [ready]);
    // A claim that finds nothing repeats the promotion now and then, until it succeeds.
    let before = scene.bucket.counts();
    assert!(
        scene
            .engine
            .claim(&claiming(10_000))
            .await
            .unwrap()
            .is_empty()
    );
    let requests = scene.bucket.counts().since(&before);
    assert!(requests.total(Operation::Get).requests <= 40, "{requests}");
    scene.mode.store(WORKS, Ordering::Relaxed);
    let lists = scene.later_lists();
    let claimed = scene.engine.claim(&claiming(20_000)).await.unwrap();
    assert_eq!(claimed[0].id, scene.delayed);
    assert_eq!(scene.later_lists(), lists, "the entry was remembered");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_during_a_promotion_loses_no_entry() {
    let scene = Scene::with_due_task(HANGS).await;
    let request = claiming(20_000);
    let claim = scene.engine.claim(&request);
    let runtime = scene.bucket.runtime.clone();
    tokio::select! {
        biased;
        claimed = claim => panic!("{claimed:?}"),
        () = runtime.sleep(Duration::from_millis(100)) => {}
    }
    // The next claim promotes the task, without another LIST.
    scene.mode.store(WORKS, Ordering::Relaxed);
    let lists = scene.later_lists();
    let began = runtime.monotonic();
    let claimed = scene.engine.claim(&claiming(50_000)).await.unwrap();
    let took = runtime.monotonic().saturating_sub(began);
    assert_eq!(claimed[0].id, scene.delayed);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(scene.later_lists(), lists, "the entry was remembered");
}
