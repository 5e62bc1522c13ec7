//! The monitor and each kind of lease entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore, PutOptions, PutPayload, PutResult};
use qo_core::keys::Key;
use qo_core::{QueueName, Rejection, Status, Task, TaskId};
use qo_direct::{DirectEngine, LeaseReport, Maintenance, MaintenanceConfig};
use qo_engine::{Engine, EngineError};
use qo_fixtures::{Bucket, LayeredStore, StoreLayer};
use qo_store::runtime::Runtime;
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, FaultStore, Operation};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{claim, claim_all, claim_request, complete, status, submit, submit_many};
use crate::bucket::Engines as _;

fn lease_key(task: &Task, minute: u64, attempt: u32) -> String {
    let id = task.id;
    Key::Lease {
        minute,
        id,
        attempt,
    }
    .to_string()
}

/// Checks all leases once, and waits until stale entries are deleted.
async fn check(engine: &DirectEngine) -> LeaseReport {
    let report = engine.check_leases().await.unwrap();
    engine.close().await;
    report
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_after_its_lease_and_the_margin() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let task = submit(&engine).await;
    claim(&engine).await;
    let monitor = bucket.engine();

    bucket.runtime.pass_seconds(30).await;
    let mut expected = LeaseReport::default();
    expected.due = 1;
    expected.holding = 1;
    assert_eq!(check(&monitor).await, expected);
    bucket.runtime.pass_seconds(2).await;
    let mut expected = LeaseReport::default();
    expected.due = 1;
    expected.expired = 1;
    assert_eq!(check(&monitor).await, expected);
    let found = engine.get(task.id).await.unwrap();
    assert_eq!((found.status, found.retry_count), (Status::Pending, 1));
    assert_eq!(bucket.keys("leases").await, [""; 0]);
    assert_eq!(bucket.keys("later").await.len(), 1);
    assert_eq!(check(&monitor).await, LeaseReport::default());
}

#[tokio::test(start_paused = true)]
async fn the_last_retry_fails_the_task() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let mut request = super::request();
    request.max_retries = Some(1);
    let id = engine.submit(request).await.unwrap().task.id;
    for expected in [Status::Pending, Status::Failed] {
        claim(&engine).await;
        bucket.runtime.pass_seconds(32).await;
        check(&engine).await;
        assert_eq!(status(&engine, id).await, expected);
        bucket.runtime.pass_seconds(2).await;
    }
    assert_eq!(bucket.keys("leases").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_valid_lease_is_read_once() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit(&engine).await;
    claim(&engine).await;
    let monitor = bucket.engine();
    check(&monitor).await;
    let before = bucket.counts();
    for _ in 0..5 {
        bucket.runtime.pass_seconds(5).await;
        assert_eq!(check(&monitor).await.holding, 1);
    }
    let counts = bucket.counts().since(&before);
    assert_eq!(counts.of("tasks", Operation::Get).requests, 0);
    assert_eq!(counts.of("leases", Operation::List).requests, 5);
}

#[tokio::test(start_paused = true)]
async fn the_old_entry_of_a_renewed_lease_is_deleted_after_the_new_one_exists() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit(&engine).await;
    let task = claim(&engine).await;
    let minute = bucket.now().minute();
    bucket.runtime.pass_seconds(20).await;
    let lease = task.lease_id.unwrap();
    engine.renew(task.id, lease, Some(50_000)).await.unwrap();
    engine.close().await;
    let right = lease_key(&task, minute + 1, 1);
    assert_eq!(bucket.keys("leases").await, std::slice::from_ref(&right));

    bucket.delete_all("leases").await;
    bucket.put(&lease_key(&task, minute, 1), "").await;
    assert_eq!(check(&bucket.engine()).await.stale, 1);
    assert_eq!(bucket.keys("leases").await, [right]);
}

#[tokio::test(start_paused = true)]
async fn the_entry_of_an_older_attempt_is_deleted_after_the_current_one_exists() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit(&engine).await;
    let first = claim(&engine).await;
    let minute = bucket.now().minute();
    engine
        .release(first.id, first.lease_id.unwrap())
        .await
        .unwrap();
    bucket.runtime.pass_seconds(1).await;
    let second = claim(&engine).await;
    engine.close().await;
    let right = lease_key(&second, minute, 2);
    assert_eq!(bucket.keys("leases").await, std::slice::from_ref(&right));

    bucket.delete_all("leases").await;
    bucket.put(&lease_key(&first, minute, 1), "").await;
    assert_eq!(check(&bucket.engine()).await.stale, 1);
    assert_eq!(bucket.keys("leases").await, [right]);
}

#[tokio::test(start_paused = true)]
async fn a_pending_task_behind_a_lease_entry_gets_its_ready_entry_back() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit(&engine).await;
    let task = claim(&engine).await;
    let leases = bucket.keys("leases").await;
    engine
        .release(task.id, task.lease_id.unwrap())
        .await
        .unwrap();
    engine.close().await;
    let ready = bucket.keys("ready").await;
    // The worker died right after it stored the task.
    bucket.delete_all("ready").await;
    bucket.put(&leases[0], "").await;

    let monitor = bucket.engine();
    assert_eq!(check(&monitor).await.stale, 1);
    assert_eq!(bucket.keys("ready").await, ready);
    assert_eq!(bucket.keys("leases").await, [""; 0]);
    bucket.runtime.pass_seconds(1).await;
    assert_eq!(claim(&monitor).await.id, task.id);
}

#[tokio::test(start_paused = true)]
async fn entries_of_finished_and_missing_tasks_are_deleted() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit(&engine).await;
    let task = claim(&engine).await;
    let minute = bucket.now().minute();
    complete(&engine, &task).await;
    engine.close().await;
    bucket.put(&lease_key(&task, minute, 1), "").await;
    let nobody = Key::Lease {
        minute,
        id: TaskId::from_random(3),
        attempt: 1,
    };
    bucket.put(&nobody.to_string(), "").await;

    let report = check(&bucket.engine()).await;
    assert_eq!((report.due, report.stale), (2, 2));
    assert_eq!(bucket.keys("leases").await, [""; 0]);
    assert_eq!(bucket.keys("ready").await, [""; 0]);
    assert_eq!(status(&engine, task.id).await, Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn the_entry_of_a_possible_claim_in_flight_is_kept() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let task = submit(&engine).await;
    let key = lease_key(&task, bucket.now().minute(), 1);
    bucket.put(&key, "").await;
    for _ in 0..4 {
        assert_eq!(check(&engine).await.in_flight, 1);
        assert_eq!(bucket.keys("leases").await, std::slice::from_ref(&key));
        bucket.runtime.pass_seconds(30).await;
    }
    bucket.runtime.pass_seconds(2).await;
    assert_eq!(check(&engine).await.stale, 1);
    assert_eq!(bucket.keys("leases").await, [""; 0]);
    assert_eq!(claim(&engine).await.id, task.id);
}

#[tokio::test(start_paused = true)]
async fn unreadable_tasks_are_kept_and_counted() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit(&engine).await;
    let task = claim(&engine).await;
    bucket
        .put(&Key::Task(task.id).to_string(), "{\"id\":7}")
        .await;
    bucket.put("leases/5/whatever", "").await;
    bucket.runtime.pass_seconds(60).await;
    let before = bucket.keys("").await;
    let report = check(&bucket.engine()).await;
    assert_eq!((report.unreadable, report.foreign), (1, 1));
    assert_eq!(bucket.keys("").await, before);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_deletes_nothing() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit_many(&engine, 3).await;
    let tasks = claim_all(&engine).await;
    // One task is finished, one is missing, one has an expired lease. None of them can be read.
    complete(&engine, &tasks[0]).await;
    engine.close().await;
    let minute = bucket.now().minute();
    bucket.put(&lease_key(&tasks[0], minute, 1), "").await;
    let broken = FaultStore::new(
        bucket.objects(),
        bucket.runtime.clone(),
        FaultPlan::none().with(
            FaultRule::new(FaultKind::LostRequest, 1.0)
                .on([Operation::Get])
                .under(["tasks"]),
        ),
        1,
    );
    let monitor = bucket.engine_on(Arc::new(broken));
    bucket.runtime.pass_seconds(60).await;
    let before = bucket.keys("").await;
    let report = check(&monitor).await;
    assert_eq!((report.failed, report.stale, report.expired), (3, 0, 0));
    assert_eq!(bucket.keys("").await, before);
    let report = check(&bucket.engine()).await;
    assert_eq!((report.failed, report.stale, report.expired), (0, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_moved_task_without_its_entry_is_found_through_its_marker() {
    let bucket = Bucket::new();
    let id = submit(&bucket.engine()).await.id;
    // The process that moves it dies after the swap: no entry is written, and none is deleted.
    let lost = |operation| FaultRule::new(FaultKind::LostRequest, 1.0).on([operation]);
    let faults = FaultPlan::none()
        .with(lost(Operation::Put).under(["ready"]))
        .with(lost(Operation::Delete));
    let dying = FaultStore::new(bucket.objects(), bucket.runtime.clone(), faults, 1);
    let dying = bucket.engine_on(Arc::new(dying));
    let elsewhere: QueueName = "elsewhere".parse().unwrap();
    dying.redrive(id, elsewhere.clone()).await.unwrap();
    // Nobody serves its former queue, and no sweeper runs.
    let mut request = claim_request("w");
    request.queues = vec![elsewhere];
    let worker = bucket.engine();
    assert_eq!(worker.claim(&request).await.unwrap(), []);
    bucket.runtime.pass_seconds(240).await;
    check(&worker).await;
    let claimed = worker.claim(&request).await.unwrap();
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
}

#[tokio::test(start_paused = true)]
async fn more_running_tasks_than_fit_on_a_page_are_checked() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit_many(&engine, 1_500).await;
    assert_eq!(claim_all(&engine).await.len(), 1_500);
    engine.close().await;
    let monitor = bucket.engine();
    let before = bucket.counts();
    bucket.runtime.pass_seconds(32).await;
    assert_eq!(check(&monitor).await.expired, 1_500);
    let counts = bucket.counts().since(&before);
    assert_eq!(counts.of("leases", Operation::List).requests, 1 + 16);
    assert_eq!(counts.of("tasks", Operation::Get).requests, 1_500);
}

#[tokio::test(start_paused = true)]
async fn two_monitors_at_once_end_each_attempt_once() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let tasks = submit_many(&engine, 200).await;
    claim_all(&engine).await;
    bucket.runtime.pass_seconds(32).await;
    let (one, other) = (bucket.engine(), bucket.engine());
    let (first, second) = tokio::join!(one.check_leases(), other.check_leases());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.expired + second.expired, 200);
    for task in tasks {
        let task = engine.get(task.id).await.unwrap();
        assert_eq!((task.status, task.retry_count), (Status::Pending, 1));
        assert_eq!(task.events.iter().count(), 3);
    }
    one.close().await;
    other.close().await;
    assert_eq!(bucket.keys("leases").await, [""; 0]);
    assert_eq!(bucket.keys("later").await.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_zombie_changes_nothing() {
    let bucket = Bucket::new();
    let (zombie, other) = (bucket.engine(), bucket.engine());
    submit(&zombie).await;
    let task = claim(&zombie).await;
    let lease = task.lease_id.unwrap();
    bucket.runtime.pass_seconds(32).await;
    check(&other).await;

    let key = Key::Task(task.id).to_string();
    let lost = |error: EngineError| {
        assert!(
            matches!(error, EngineError::Rejected(Rejection::LeaseLost { .. })),
            "{error}"
        );
    };
    // It wakes up while the task is pending, and again while another worker runs it.
    for _ in 0..2 {
        let before = bucket.get(&key).await;
        lost(zombie.complete(task.id, lease, None).await.unwrap_err());
        lost(zombie.renew(task.id, lease, None).await.unwrap_err());
        lost(zombie.release(task.id, lease).await.unwrap_err());
        assert_eq!(bucket.get(&key).await, before);
        bucket.runtime.pass_seconds(2).await;
        if status(&other, task.id).await == Status::Pending {
            assert_eq!(claim(&other).await.attempt, 2);
        }
    }
    assert_eq!(status(&other, task.id).await, Status::Running);
}

#[tokio::test(start_paused = true)]
async fn clocks_90_seconds_apart_end_nothing_early() {
    for offset_ms in [-90_000, 90_000] {
        let bucket = Bucket::new();
        let (here, there) = (bucket.engine(), bucket.engine_off_by(offset_ms));
        for (worker, monitor) in [(&here, &there), (&there, &here)] {
            let id = submit(worker).await.id;
            // The clock is known to half a second.
            bucket.runtime.pass_seconds(1).await;
            let task = claim(monitor).await;
            for _ in 0..6 {
                bucket.runtime.pass_seconds(10).await;
                worker.check_leases().await.unwrap();
                let lease = task.lease_id.unwrap();
                monitor.renew(id, lease, None).await.unwrap();
            }
            bucket.runtime.pass_seconds(29).await;
            assert_eq!(worker.check_leases().await.unwrap().expired, 0);
            bucket.runtime.pass_seconds(4).await;
            assert_eq!(worker.check_leases().await.unwrap().expired, 1);
            // The retry is due.
            bucket.runtime.pass_seconds(2).await;
            let mut again = claim_request("v");
            again.wait_ms = 5_000;
            let again = monitor.claim(&again).await.unwrap();
            assert_eq!((again[0].id, again[0].attempt), (id, 2));
            complete(monitor, &again[0]).await;
        }
    }
}

/// A store with few connections. The reads of tasks hang, except of one, and keep their connections.
#[derive(Debug)]
struct FewConnections {
    objects: Arc<dyn ObjectStore>,
    connections: Semaphore,
    own: Path,
    hanging: Arc<AtomicUsize>,
}

impl FewConnections {
    const COUNT: usize = 32;

    async fn connect(&self) -> SemaphorePermit<'_> {
        self.connections.acquire().await.unwrap()
    }
}

#[async_trait::async_trait]
impl StoreLayer for FewConnections {
    fn inner(&self) -> &dyn ObjectStore {
        self.objects.as_ref()
    }

    async fn put_opts(
        &self,
        location: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let _connection = self.connect().await;
        self.objects.put_opts(location, body, options).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let _connection = self.connect().await;
        if location.as_ref().starts_with("tasks/") && *location != self.own {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            return std::future::pending().await;
        }
        self.objects.get_opts(location, options).await
    }
}

#[tokio::test(start_paused = true)]
async fn checks_that_hang_leave_room_for_renewals() {
    let bucket = Bucket::new();
    // The worker of many tasks dies.
    let dead = bucket.engine();
    submit_many(&dead, 200).await;
    assert_eq!(claim_all(&dead).await.len(), 200);
    let own = submit(&dead).await;
    let hanging = Arc::new(AtomicUsize::new(0));
    let engine = bucket.engine_on(Arc::new(LayeredStore(FewConnections {
        objects: bucket.counted(),
        connections: Semaphore::new(FewConnections::COUNT),
        own: Path::from(Key::Task(own.id).to_string()),
        hanging: Arc::clone(&hanging),
    })));
    let task = claim(&engine).await;
    assert_eq!(task.id, own.id);
    let maintenance = Maintenance::spawn(engine.clone(), MaintenanceConfig::default());
    let lease = task.lease_id.unwrap();
    let mut longest = Duration::ZERO;
    for _ in 0..30 {
        bucket.runtime.sleep(Duration::from_secs(10)).await;
        let began = bucket.runtime.monotonic();
        engine.renew(task.id, lease, None).await.unwrap();
        longest = longest.max(bucket.runtime.monotonic().saturating_sub(began));
    }
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let hung = hanging.load(Ordering::SeqCst);
    assert!(hung >= 16, "only {hung} checks were hanging");
    maintenance.stop().await;
}
