//! Many workers on one bucket: work for the whole bucket is done once, and hints stop nobody.

#![expect(clippy::disallowed_methods, reason = "a test spawns its workers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, PutOptions, PutPayload, PutResult, Result};
use qo_core::keys::{CLAIMS_KEY, Key, READY_PREFIX, ROSTER_KEY, SIGNAL_KEY};
use qo_core::{Json, Status, TaskId, WorkerId};
use qo_direct::{DirectEngine, Maintenance, MaintenanceConfig, MaintenanceHandle};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, When, WorkerInfo};
use qo_fixtures::{Bucket, LayeredStore, StoreLayer};
use qo_store::response::ResponseError;
use qo_store::runtime::Runtime;
use qo_store::wrap::Operation;

use crate::bucket::Engines as _;

const WORKERS: usize = 16;

/// A worker that claims until it is dropped.
struct Worker {
    _maintenance: MaintenanceHandle,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn request() -> SubmitRequest {
    SubmitRequest::new("noop".parse().unwrap(), Json::null())
}

async fn beat(engine: &DirectEngine, name: &WorkerId) {
    let info = WorkerInfo::new(name.clone(), engine.now());
    engine.heartbeat(&info).await.unwrap();
}

/// Starts a worker whose tasks take some time and are renewed meanwhile.
async fn start(bucket: &Bucket, number: usize, takes: Duration) -> Worker {
    let engine = bucket.engine();
    let name: WorkerId = format!("worker-{number:02}").parse().unwrap();
    beat(&engine, &name).await;
    let maintenance = Maintenance::spawn(engine.clone(), MaintenanceConfig::default());
    let claiming = ClaimRequest {
        wait_ms: 1_000,
        max: 4,
        ..ClaimRequest::new(name.clone(), vec!["noop".parse().unwrap()])
    };
    let (beating, runtime) = (engine.clone(), bucket.runtime.clone());
    let beating_name = name.clone();
    let beats = tokio::spawn(async move {
        loop {
            runtime.sleep(Duration::from_secs(15)).await;
            beat(&beating, &beating_name).await;
        }
    });
    let (worker, runtime) = (engine.clone(), bucket.runtime.clone());
    let claims = tokio::spawn(async move {
        loop {
            for task in worker.claim(&claiming).await.unwrap() {
                let (worker, runtime) = (worker.clone(), runtime.clone());
                tokio::spawn(async move {
                    let lease = task.lease_id.unwrap();
                    let mut left = takes;
                    while left > Duration::from_secs(10) {
                        runtime.sleep(Duration::from_secs(10)).await;
                        left -= Duration::from_secs(10);
                        worker.renew(task.id, lease, None).await.unwrap();
                    }
                    worker.complete(task.id, lease, None).await.unwrap();
                });
            }
        }
    });
    Worker {
        _maintenance: maintenance,
        tasks: vec![beats, claims],
    }
}

async fn fleet(bucket: &Bucket, takes: Duration) -> Vec<Worker> {
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(start(bucket, number, takes).await);
        bucket.runtime.sleep(Duration::from_millis(700)).await;
    }
    // Everybody knows everybody.
    bucket.runtime.pass_seconds(300).await;
    workers
}

async fn submit_delayed(engine: &DirectEngine, count: u64) {
    for number in 0..count {
        let delayed = SubmitRequest {
            available: When::InMillis(5_000 + number * 1_000),
            ..request()
        };
        engine.submit(delayed).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_worker_of_a_fleet_promotes_a_delayed_task() {
    let bucket = Bucket::new();
    let workers = fleet(&bucket, Duration::ZERO).await;
    let before = bucket.counts();
    submit_delayed(&bucket.engine(), 20).await;
    bucket.runtime.pass_seconds(40).await;
    let counts = bucket.counts().since(&before);
    assert_eq!(counts.of("tasks", Operation::Swap).requests, 40, "{counts}");
    let promoted = counts.of("ready", Operation::Put).requests;
    assert!((20..=24).contains(&promoted), "{counts}");
    drop(workers);
}

/// Starts a worker that is busy with something else: it sends heartbeats and claims nothing.
async fn start_busy(bucket: &Bucket, number: usize) -> Worker {
    let mut worker = start(bucket, number, Duration::ZERO).await;
    if let Some(claims) = worker.tasks.pop() {
        claims.abort();
    }
    worker
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_assigned_to_busy_workers_is_soon_taken_by_an_idle_one() {
    let bucket = Bucket::new();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        // Their ranks follow each other, so that a task's worker and its first backups are often all busy.
        let is_busy = number % 4 != 0;
        workers.push(if is_busy {
            start_busy(&bucket, number).await
        } else {
            start(&bucket, number, Duration::ZERO).await
        });
    }
    bucket.runtime.pass_seconds(300).await;
    let submitter = bucket.engine();
    let mut longest = Duration::ZERO;
    // Alone, and with others soon after it.
    for gap_ms in [20_000, 2_000] {
        let mut waiting = Vec::new();
        for _ in 0..2 * WORKERS {
            let id = submitter.submit(request()).await.unwrap().task.id;
            waiting.push((id, bucket.runtime.monotonic()));
            let until = bucket.runtime.monotonic() + Duration::from_millis(gap_ms);
            while bucket.runtime.monotonic() < until {
                bucket.runtime.sleep(Duration::from_millis(500)).await;
                longest = longest.max(wait_of_started(&submitter, &bucket, &mut waiting).await);
            }
        }
        while !waiting.is_empty() {
            bucket.runtime.sleep(Duration::from_millis(500)).await;
            longest = longest.max(wait_of_started(&submitter, &bucket, &mut waiting).await);
        }
    }
    // Two steal times and the interval of the signal; or, among others, the time until an idle worker has its turn, which may come together
    // with that of a busy one.
    assert!(longest <= Duration::from_secs(15), "{longest:?}");
    drop(workers);
}

/// Removes the tasks that are no longer pending, and returns the longest time that one of them has waited.
async fn wait_of_started(
    engine: &DirectEngine,
    bucket: &Bucket,
    waiting: &mut Vec<(TaskId, Duration)>,
) -> Duration {
    let mut longest = Duration::ZERO;
    let mut still = Vec::new();
    for (id, since) in waiting.drain(..) {
        let waited = bucket.runtime.monotonic().saturating_sub(since);
        if engine.get(id).await.unwrap().status == Status::Pending {
            still.push((id, since));
        } else {
            longest = longest.max(waited);
        }
    }
    *waiting = still;
    longest
}

#[tokio::test(start_paused = true)]
async fn the_others_promote_when_the_first_workers_are_gone() {
    let bucket = Bucket::new();
    let mut workers = fleet(&bucket, Duration::ZERO).await;
    for gone in [1, 2] {
        for worker in workers.drain(..gone) {
            // It does not deregister.
            drop(worker);
        }
        let submitter = bucket.engine();
        submit_delayed(&submitter, 3).await;
        bucket.runtime.pass_seconds(400).await;
        let counts = submitter.stats().await.unwrap();
        assert!(bucket.keys("later").await.is_empty(), "{counts:?}");
        assert!(bucket.keys(READY_PREFIX).await.is_empty(), "{counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn entries_that_cannot_be_parsed_do_not_stop_promotion() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    for number in 0..1_500 {
        bucket.put(&format!("later/000/{number:05}"), "junk").await;
        bucket
            .put(&format!("ready/default/noop/0/{number:05}"), "junk")
            .await;
    }
    let delayed = SubmitRequest {
        available: When::InMillis(2_000),
        ..request()
    };
    let id = engine.submit(delayed).await.unwrap().task.id;
    bucket.runtime.pass_seconds(3).await;
    let other = bucket.engine();
    let claiming = ClaimRequest {
        wait_ms: 5_000,
        ..ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()])
    };
    let claimed = other.claim(&claiming).await.unwrap();
    assert_eq!(claimed.first().map(|task| task.id), Some(id));
}

/// The workers that the roster names.
async fn roster(bucket: &Bucket) -> Vec<String> {
    let read = bucket.client_on(bucket.objects()).get(ROSTER_KEY).await;
    let Ok(object) = read else {
        return Vec::new();
    };
    let record: serde_json::Value = serde_json::from_slice(&object.body).unwrap();
    let workers = record["workers"].as_object().unwrap();
    workers.keys().cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn one_worker_reads_the_records_for_all() {
    let bucket = Bucket::new();
    let before = bucket.counts();
    let workers = fleet(&bucket, Duration::ZERO).await;
    submit_delayed(&bucket.engine(), 20).await;
    bucket.runtime.pass_seconds(300).await;
    let counts = bucket.counts().since(&before);
    assert_eq!(roster(&bucket).await.len(), WORKERS);
    // Each record is read a few times, not once by each of the other workers.
    let reads = counts.of("workers", Operation::Get).requests;
    assert!(reads <= 4 * WORKERS as u64, "{counts}");
    drop(workers);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_alone_writes_no_roster() {
    let bucket = Bucket::new();
    let worker = start(&bucket, 0, Duration::ZERO).await;
    bucket.engine().submit(request()).await.unwrap();
    bucket.runtime.pass_seconds(300).await;
    assert!(bucket.keys(READY_PREFIX).await.is_empty());
    assert_eq!(roster(&bucket).await, [""; 0]);
    let second = start(&bucket, 1, Duration::ZERO).await;
    bucket.runtime.pass_seconds(20).await;
    assert_eq!(roster(&bucket).await, ["worker-00", "worker-01"]);
    drop((worker, second));
}

#[tokio::test(start_paused = true)]
async fn the_roster_follows_workers_that_come_stop_and_die() {
    let bucket = Bucket::new();
    let mut workers = Vec::new();
    for number in 0..4 {
        workers.push(start(&bucket, number, Duration::ZERO).await);
    }
    bucket.runtime.pass_seconds(30).await;
    assert_eq!(roster(&bucket).await.len(), 4);
    // One stops and says so.
    let stopping = bucket.engine();
    let name: WorkerId = "worker-x".parse().unwrap();
    beat(&stopping, &name).await;
    bucket.runtime.pass_seconds(1).await;
    assert_eq!(roster(&bucket).await.len(), 5);
    stopping.deregister(&name).await.unwrap();
    assert_eq!(roster(&bucket).await.len(), 4);
    // The first two, who keep the roster, die.
    workers.drain(..2);
    let submitter = bucket.engine();
    for _ in 0..300 {
        submitter.submit(request()).await.unwrap();
        bucket.runtime.pass_seconds(3).await;
    }
    assert_eq!(roster(&bucket).await, ["worker-02", "worker-03"]);
    // A damaged roster is written anew.
    bucket.put(ROSTER_KEY, "{").await;
    for _ in 0..30 {
        submitter.submit(request()).await.unwrap();
        bucket.runtime.pass_seconds(3).await;
    }
    assert_eq!(roster(&bucket).await, ["worker-02", "worker-03"]);
    bucket.runtime.pass_seconds(20).await;
    assert!(bucket.keys(READY_PREFIX).await.is_empty());
    drop(workers);
}

#[tokio::test(start_paused = true)]
async fn a_new_task_wakes_few_of_many_workers() {
    let bucket = Bucket::new();
    let workers = fleet(&bucket, Duration::ZERO).await;
    let submitter = bucket.engine();
    // The first signal tells nobody what is new.
    submitter.submit(request()).await.unwrap();
    bucket.runtime.pass_seconds(10).await;
    let before = bucket.counts();
    for _ in 0..10 {
        submitter.submit(request()).await.unwrap();
        bucket.runtime.pass_seconds(10).await;
    }
    let counts = bucket.counts().since(&before);
    assert_eq!(counts.of("tasks", Operation::Swap).requests, 20, "{counts}");
    // The worker that it is assigned to and three more list. Beside that each worker lists a few times in these 100 seconds in any case.
    let lists = counts.of("ready", Operation::List).requests;
    assert!(lists <= 4 * 10 + 2 * WORKERS as u64, "{counts}");
    drop(workers);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_nobody_serves_cost_no_lists() {
    let bucket = Bucket::new();
    let submitter = bucket.engine();
    submitter.submit(request()).await.unwrap();
    let workers = fleet(&bucket, Duration::ZERO).await;
    let before = bucket.counts();
    for _ in 0..15 {
        let foreign = SubmitRequest::new("foreign".parse().unwrap(), Json::null());
        submitter.submit(foreign).await.unwrap();
        bucket.runtime.pass_seconds(2).await;
    }
    let counts = bucket.counts().since(&before);
    // Each worker lists once a minute in any case.
    let lists = counts.of("ready", Operation::List).requests;
    assert!(lists <= WORKERS as u64, "{counts}");
    drop(workers);
}

#[tokio::test(start_paused = true)]
async fn a_long_task_is_read_about_twice_a_minute_by_the_whole_fleet() {
    let bucket = Bucket::new();
    let workers = fleet(&bucket, Duration::from_hours(1)).await;
    let submitter = bucket.engine();
    for submitted in submitter
        .submit_many((0..40).map(|_| request()).collect())
        .await
    {
        submitted.unwrap();
    }
    bucket.runtime.pass_seconds(120).await;
    let before = bucket.counts();
    bucket.runtime.pass_seconds(600).await;
    let counts = bucket.counts().since(&before);
    let reads = counts.of("tasks", Operation::Get).requests;
    assert!(reads <= 40 * 10 * 5 / 2, "{counts}");
    // Two workers list the leases for all, twice a minute. The others do so every five minutes.
    let lists = counts.of("leases", Operation::List).requests;
    assert!(lists <= 2 * 25 + 14 * 4, "{counts}");
    drop(workers);
}

/// How long it takes until a task whose worker has died is completed by a fleet of four whose first two workers died at the same time.
/// Whom the roster shows depends on when they die, and how soon a check follows depends on the second of the minute.
async fn recovery_from_three_deaths(after_seconds: u64) -> Duration {
    let bucket = Bucket::new();
    let mut workers = Vec::new();
    for number in 0..4 {
        workers.push(start(&bucket, number, Duration::ZERO).await);
    }
    bucket.runtime.pass_seconds(300 + after_seconds).await;
    let dying = bucket.engine();
    let id = dying.submit(request()).await.unwrap().task.id;
    let claiming = ClaimRequest::new("victim".parse().unwrap(), vec!["noop".parse().unwrap()]);
    assert_eq!(dying.claim(&claiming).await.unwrap().len(), 1);
    drop(dying);
    workers.drain(..2);
    let observer = bucket.engine();
    let began = bucket.runtime.monotonic();
    while observer.get(id).await.unwrap().status != Status::Completed {
        bucket.runtime.pass_seconds(1).await;
    }
    bucket.runtime.monotonic().saturating_sub(began)
}

#[tokio::test(start_paused = true)]
async fn a_small_fleet_recovers_from_several_deaths_as_soon_as_from_one() {
    let mut longest = Duration::ZERO;
    for after_seconds in (0..120).step_by(7) {
        longest = longest.max(recovery_from_three_deaths(after_seconds).await);
    }
    // The lease, the delay of the third worker, its interval, and the first retry.
    assert!(longest <= Duration::from_secs(95), "{longest:?}");
}

/// Maintenance whose passes are as slow as those over millions of tasks.
fn slow_sweeps() -> MaintenanceConfig {
    let mut config = MaintenanceConfig::default();
    config.sweep_page_size = 1;
    config
}

async fn finish(engine: &DirectEngine, count: usize) {
    for submitted in engine
        .submit_many((0..count).map(|_| request()).collect())
        .await
    {
        submitted.unwrap();
    }
    let claiming = ClaimRequest {
        max: count,
        ..ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()])
    };
    let mut finished = 0;
    while finished < count {
        for task in engine.claim(&claiming).await.unwrap() {
            let lease = task.lease_id.unwrap();
            engine.complete(task.id, lease, None).await.unwrap();
            finished += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_task_without_an_entry_is_found_in_ten_minutes_behind_a_long_history() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    finish(&engine, 1_000).await;
    engine.close().await;
    let maintenance = Maintenance::spawn(engine.clone(), slow_sweeps());
    bucket.runtime.pass_seconds(1_000).await;
    for _ in 0..3 {
        let id = engine.submit(request()).await.unwrap().task.id;
        bucket.delete_all(READY_PREFIX).await;
        let claiming = ClaimRequest {
            wait_ms: 600_000,
            ..ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()])
        };
        let claimed = bucket.engine().claim(&claiming).await.unwrap();
        assert_eq!(claimed.first().map(|task| task.id), Some(id));
        let lease = claimed[0].lease_id.unwrap();
        engine.complete(id, lease, None).await.unwrap();
    }
    maintenance.stop().await;
}

#[tokio::test(start_paused = true)]
async fn finished_tasks_are_purged_after_the_retention_time() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    finish(&engine, 700).await;
    engine.close().await;
    let pending = engine.submit(request()).await.unwrap().task.id;
    let mut config = MaintenanceConfig::default();
    config.retention = Some(Duration::from_hours(1));
    let maintenance = Maintenance::spawn(engine.clone(), config);
    bucket.runtime.pass_seconds(3_000).await;
    assert_eq!(bucket.keys("tasks").await.len(), 701);
    // A step purges 500 of them.
    bucket.runtime.pass_seconds(901).await;
    let left = bucket.keys("tasks").await.len();
    assert!((1..=201).contains(&left), "{left}");
    bucket.runtime.pass_seconds(900).await;
    let key = Key::Task(pending).to_string();
    assert_eq!(bucket.keys("tasks").await, [key]);
    maintenance.stop().await;
}

/// A store whose writes of hints never return.
#[derive(Debug)]
struct HangingHints(Arc<dyn ObjectStore>);

#[async_trait::async_trait]
impl StoreLayer for HangingHints {
    fn inner(&self) -> &dyn ObjectStore {
        self.0.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if path.as_ref().starts_with("meta/") {
            return std::future::pending().await;
        }
        self.0.put_opts(path, body, opts).await
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_hints() {
    let bucket = Bucket::new();
    let engine = bucket.engine_on(Arc::new(LayeredStore(HangingHints(bucket.counted()))));
    let began = bucket.runtime.monotonic();
    let id = engine.submit(request()).await.unwrap().task.id;
    let claiming = ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()]);
    let claimed = engine.claim(&claiming).await.unwrap();
    assert_eq!(claimed[0].id, id);
    let lease = claimed[0].lease_id.unwrap();
    engine.complete(id, lease, None).await.unwrap();
    let took = bucket.runtime.monotonic().saturating_sub(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A store that refuses all writes of hints, and records when they came.
#[derive(Debug)]
struct RefusedHints {
    objects: Arc<dyn ObjectStore>,
    runtime: Arc<dyn Runtime>,
    refused: Arc<Mutex<Vec<(String, Duration)>>>,
}

#[async_trait::async_trait]
impl StoreLayer for RefusedHints {
    fn inner(&self) -> &dyn ObjectStore {
        self.objects.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if !path.as_ref().starts_with("meta/") {
            return self.objects.put_opts(path, body, opts).await;
        }
        let at = self.runtime.monotonic();
        self.refused.lock().unwrap().push((path.to_string(), at));
        let busy = ResponseError::Status {
            status: 503,
            code: Some("SlowDown".to_owned()),
            message: "busy".to_owned(),
        };
        Err(object_store::Error::Generic {
            store: "test",
            source: Box::new(busy),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn no_write_of_a_hint_is_repeated_at_once() {
    let bucket = Bucket::new();
    let refused = Arc::new(Mutex::new(Vec::new()));
    let engine = bucket.engine_on(Arc::new(LayeredStore(RefusedHints {
        objects: bucket.counted(),
        runtime: bucket.runtime.clone(),
        refused: Arc::clone(&refused),
    })));
    let id = engine.submit(request()).await.unwrap().task.id;
    let claiming = ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()]);
    assert_eq!(engine.claim(&claiming).await.unwrap()[0].id, id);
    bucket.runtime.pass_seconds(60).await;
    let refused = refused.lock().unwrap().clone();
    let (signals, others): (Vec<_>, Vec<_>) = refused
        .iter()
        .cloned()
        .partition(|(path, _)| path == SIGNAL_KEY);
    assert_eq!(others.len(), 1, "{others:?}");
    assert_eq!(others[0].0, CLAIMS_KEY);
    // The change is announced with later ones, a moment later, and is given up after five announcements.
    assert_eq!(signals.len(), 5, "{signals:?}");
    for pair in signals.windows(2) {
        let gap = pair[1].1.saturating_sub(pair[0].1);
        assert!(gap >= Duration::from_millis(500), "{signals:?}");
    }
}

/// A store whose list of workers never returns after the first.
#[derive(Debug)]
struct HangingWorkers(Arc<dyn ObjectStore>);

#[async_trait::async_trait]
impl StoreLayer for HangingWorkers {
    fn inner(&self) -> &dyn ObjectStore {
        self.0.as_ref()
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: object_store::GetOptions,
    ) -> Result<object_store::GetResult> {
        if matches!(location.as_ref().parse(), Ok(Key::Worker(_))) {
            return std::future::pending().await;
        }
        self.0.get_opts(location, options).await
    }
}

#[tokio::test(start_paused = true)]
async fn claims_do_not_wait_for_the_records_of_other_workers() {
    let bucket = Bucket::new();
    let engine = bucket.engine_on(Arc::new(LayeredStore(HangingWorkers(bucket.counted()))));
    for number in 0..50 {
        let name = format!("worker-{number:02}").parse().unwrap();
        beat(&bucket.engine(), &name).await;
    }
    let began = bucket.runtime.monotonic();
    let id = engine.submit(request()).await.unwrap().task.id;
    let claiming = ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()]);
    let claimed = engine.claim(&claiming).await.unwrap();
    assert_eq!(claimed[0].id, id);
    let took = bucket.runtime.monotonic().saturating_sub(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A store that takes long to return the roster.
#[derive(Debug)]
struct SlowRoster {
    objects: Arc<dyn ObjectStore>,
    runtime: Arc<dyn Runtime>,
}

#[async_trait::async_trait]
impl StoreLayer for SlowRoster {
    fn inner(&self) -> &dyn ObjectStore {
        self.objects.as_ref()
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: object_store::GetOptions,
    ) -> Result<object_store::GetResult> {
        if location.as_ref() == ROSTER_KEY {
            self.runtime.sleep(Duration::from_secs(2)).await;
        }
        self.objects.get_opts(location, options).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_takes_tasks_in_their_order() {
    let bucket = Bucket::new();
    let engine = bucket.engine_on(Arc::new(LayeredStore(SlowRoster {
        objects: bucket.counted(),
        runtime: bucket.runtime.clone(),
    })));
    let mut submitted = Vec::new();
    for _ in 0..20 {
        submitted.push(engine.submit(request()).await.unwrap().task.id);
        bucket.runtime.sleep(Duration::from_millis(5)).await;
    }
    // Maintenance refreshes the roster when the worker registers.
    let maintenance = Maintenance::spawn(engine.clone(), MaintenanceConfig::default());
    bucket.runtime.sleep(Duration::from_secs(1)).await;
    let name: WorkerId = "worker".parse().unwrap();
    beat(&engine, &name).await;
    let claiming = ClaimRequest::new(name, vec!["noop".parse().unwrap()]);
    let mut claimed = Vec::new();
    while claimed.len() < submitted.len() {
        claimed.push(engine.claim(&claiming).await.unwrap()[0].id);
    }
    assert_eq!(claimed, submitted);
    maintenance.stop().await;
}
