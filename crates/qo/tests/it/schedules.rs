//! Schedules: each tick makes exactly one task, whatever fails and however many processes fire.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::ObjectStore;
use qo::engine::api::{DocumentQuery, DocumentWrite, Duty};
use qo::schedule::{Overlap, RunKind, ScheduleSpec, TaskTemplate};
use qo::{
    BrokerEngine, ClaimRequest, DirectConfig, DirectEngine, Engine, Error, ErrorKind, JsonConfig,
    OnFailure, OrderingKey, Queue, ScheduleDriver, SlateConfig, Status, Task, TaskFilter, TaskId,
    Timestamp,
};
use qo_core::{DocumentId, DocumentKind, Json};
use qo_fixtures::Bucket;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore, Operation};

const NAME: &str = "nightly";
const SECOND: u64 = 1_000;

fn template() -> TaskTemplate {
    TaskTemplate::new("report".parse().unwrap())
}

fn every(seconds: u64) -> ScheduleSpec {
    ScheduleSpec::every_ms(seconds * SECOND, template())
}

/// The engine of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Direct,
    Json,
    /// One process has the queue; the others are its clients.
    Slate,
}

const KINDS: [Kind; 3] = [Kind::Direct, Kind::Json, Kind::Slate];

async fn process(bucket: &Bucket, objects: Arc<dyn ObjectStore>, kind: Kind) -> Queue {
    let runtime: Arc<dyn Runtime> = bucket.runtime.clone();
    let engine: Arc<dyn Engine> = match kind {
        Kind::Direct => {
            let client = bucket.client_on(objects);
            let config = DirectConfig::default();
            Arc::new(DirectEngine::new(
                client,
                None,
                Arc::clone(&runtime),
                config,
            ))
        }
        Kind::Json => {
            let mut config = JsonConfig::default();
            // Finished tasks leave the queue at once.
            config.finished_max = 0;
            Arc::new(BrokerEngine::json(
                objects,
                Arc::new(StoreClock::new()),
                Arc::clone(&runtime),
                ClientConfig::default(),
                config,
            ))
        }
        Kind::Slate => {
            let clock = Arc::new(StoreClock::new());
            let (runtime, client) = (Arc::clone(&runtime), ClientConfig::default());
            let config = SlateConfig::default();
            let engine = BrokerEngine::slate(objects, clock, runtime, client, config);
            Arc::new(engine.await.unwrap())
        }
    };
    Queue::new(engine, runtime)
}

/// The queue in several processes.
async fn processes(bucket: &Bucket, kind: Kind) -> [Queue; 3] {
    let first = process(bucket, bucket.objects(), kind).await;
    if kind == Kind::Slate {
        return [first.clone(), first.clone(), first];
    }
    let second = process(bucket, bucket.objects(), kind).await;
    [first, second, process(bucket, bucket.objects(), kind).await]
}

/// The tick of a task: its id contains it. A late task is due when it is submitted.
fn tick_of(task: &Task) -> Timestamp {
    let millis = (task.id.as_uuid().as_u128() >> 80) & ((1 << 44) - 1);
    Timestamp::from_millis(i64::try_from(millis).unwrap())
}

async fn tasks(queue: &Queue) -> Vec<Task> {
    let all = queue.list_all(TaskFilter::default());
    let mut tasks: Vec<Task> = all.try_collect().await.unwrap();
    tasks.sort_by_key(tick_of);
    tasks
}

/// Steps a driver until it has nothing to do before `until`.
async fn drive(driver: &mut ScheduleDriver, bucket: &Bucket, until: Timestamp) {
    while bucket.now() < until {
        let sleep = driver.step().await;
        let left = until.since(bucket.now());
        bucket.runtime.sleep(sleep.min(left)).await;
    }
}

/// Claims and completes every due task, and returns the ids.
async fn complete_all(queue: &Queue) -> Vec<TaskId> {
    let mut done = Vec::new();
    loop {
        let claim = ClaimRequest {
            max: 100,
            ..ClaimRequest::new("w".parse().unwrap(), vec!["report".parse().unwrap()])
        };
        let claimed = queue.claim(&claim).await.unwrap();
        if claimed.is_empty() {
            return done;
        }
        for task in claimed {
            queue
                .complete(task.id, task.lease_id.unwrap(), None)
                .await
                .unwrap();
            done.push(task.id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_defined_shown_paused_and_removed() {
    for kind in KINDS {
        let bucket = Bucket::new();
        let [queue, other, _] = processes(&bucket, kind).await;
        let schedules = queue.schedules();
        let missing = schedules.get(NAME).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let added = schedules.add(NAME, every(60)).await.unwrap();
        assert!(added.next.is_some() && added.last.is_none());
        // The same definition again changes nothing, and another one is refused.
        other.schedules().add(NAME, every(60)).await.unwrap();
        let error = other.schedules().add(NAME, every(30)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let info = other.schedules().get(NAME).await.unwrap();
        assert_eq!(info, schedules.get(NAME).await.unwrap());
        assert_eq!(info.upcoming.len(), 5);
        assert_eq!(
            other.schedules().put(NAME, every(30)).await.unwrap().spec,
            every(30)
        );
        let paused = schedules.pause(NAME).await.unwrap();
        assert!(paused.paused_at.is_some() && paused.next.is_none());
        assert_eq!(other.schedules().list().await.unwrap(), [paused]);
        let task = schedules.trigger(NAME).await.unwrap();
        let stored = queue.get(task).await.unwrap();
        assert!(
            stored
                .tags
                .iter()
                .any(|tag| tag.as_str() == "schedule:nightly")
        );
        let resumed = other.schedules().resume(NAME).await.unwrap();
        assert_eq!(resumed.last.unwrap().kind, RunKind::Trigger);
        schedules.remove(NAME).await.unwrap();
        assert!(schedules.list().await.unwrap().is_empty());
        let gone = other.schedules().trigger(NAME).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_and_writes_nothing() {
    let bucket = Bucket::new();
    let queue = process(&bucket, bucket.objects(), Kind::Direct).await;
    let past = Timestamp::from_millis(1_000);
    let mut backwards = every(60);
    backwards.start = Some(queue.now());
    backwards.end = Some(past);
    let mut over = every(60);
    over.end = Some(past);
    let mut zone = ScheduleSpec::cron("* * * * *", template());
    zone.time_zone = Some("Mars/Olympus".to_owned());
    for spec in [
        every(0),
        ScheduleSpec::cron("not a line", template()),
        ScheduleSpec::at(vec![past], template()),
        zone,
        backwards,
        over,
    ] {
        let error = queue.schedules().put(NAME, spec).await.unwrap_err();
        assert!(matches!(error, Error::Schedule(_)), "{error}");
        assert_eq!(error.kind(), ErrorKind::BadInput);
    }
    for name in ["", "a/b", &"x".repeat(65)] {
        assert!(queue.schedules().put(name, every(60)).await.is_err());
    }
    assert!(bucket.keys("").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_tick_makes_one_task_from_several_processes() {
    for kind in KINDS {
        let bucket = Bucket::new();
        let queues = processes(&bucket, kind).await;
        queues[0].schedules().add(NAME, every(10)).await.unwrap();
        let start = bucket.now();
        let mut drivers: Vec<_> = queues
            .iter()
            .map(|queue| ScheduleDriver::new(queue.clone()))
            .collect();
        let until = start.plus_millis(100 * SECOND + 500);
        // All of them run, and race.
        let runs = drivers
            .iter_mut()
            .map(|driver| drive(driver, &bucket, until));
        futures_util::future::join_all(runs).await;
        let due: Vec<Timestamp> = tasks(&queues[1]).await.iter().map(tick_of).collect();
        let ticks = every(10).ticks().unwrap().between(start, until, 100);
        assert_eq!(due, ticks, "{kind:?}");
        let info = queues[2].schedules().get(NAME).await.unwrap();
        assert_eq!(info.fired, ticks.len() as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_task_was_dropped_is_not_fired_again() {
    // Finished tasks leave this queue at once.
    let bucket = Bucket::new();
    let queue = process(&bucket, bucket.objects(), Kind::Json).await;
    queue.schedules().add(NAME, every(10)).await.unwrap();
    let mut first = ScheduleDriver::new(queue.clone());
    // The second driver has read the schedule, and is then suspended.
    let stale = process(&bucket, bucket.objects(), Kind::Json).await;
    let mut second = ScheduleDriver::new(stale);
    second.step().await;
    let start = bucket.now();
    let mut done = Vec::new();
    for tick in 1..=5 {
        let until = start.plus_millis(tick * 10 * SECOND + 100);
        drive(&mut first, &bucket, until).await;
        done.extend(complete_all(&queue).await);
    }
    assert_eq!(done.len(), 5);
    assert!(tasks(&queue).await.is_empty(), "finished tasks are dropped");
    // It wakes up, long after its ticks are decided and their tasks are gone.
    second.step().await;
    assert!(complete_all(&queue).await.is_empty());
}

/// Fires one tick with a fault at the n-th request, then lets another process go on.
async fn fire_with(fault: FaultKind, at: u64) -> (u64, Vec<Timestamp>, Vec<Timestamp>, u64) {
    let bucket = Bucket::new();
    let setup = process(&bucket, bucket.objects(), Kind::Direct).await;
    setup.schedules().add(NAME, every(60)).await.unwrap();
    let start = bucket.now();
    let runtime: Arc<dyn Runtime> = bucket.runtime.clone();
    let faulty = Arc::new(FaultStore::new(
        bucket.objects(),
        runtime,
        FaultPlan::default(),
        7,
    ));
    let struck = process(&bucket, faulty.clone(), Kind::Direct).await;
    let mut driver = ScheduleDriver::new(struck.clone());
    driver.step().await;
    let ticks = every(60).ticks().unwrap();
    let first = ticks.after(start).unwrap();
    bucket.runtime.sleep(first.since(bucket.now())).await;
    let mut plan = FaultPlan::default();
    plan.script.insert(at, fault);
    faulty.set_plan(plan);
    // A process that gets no answer is as good as dead.
    let step = async {
        driver.step().await;
    };
    let _ = tokio::time::timeout(Duration::from_secs(20), step).await;
    let requests = faulty.requests();
    faulty.crash();
    drop(driver);
    // Another process takes over. Writes that were late have arrived meanwhile.
    let heir = process(&bucket, bucket.objects(), Kind::Direct).await;
    let until = first.plus_millis(150 * SECOND);
    drive(&mut ScheduleDriver::new(heir.clone()), &bucket, until).await;
    let due = tasks(&heir).await.iter().map(tick_of).collect();
    let info = heir.schedules().get(NAME).await.unwrap();
    let expected = ticks.between(start, until, 100);
    (requests, due, expected, info.fired)
}

#[tokio::test(start_paused = true)]
async fn a_crash_or_a_lost_response_at_any_request_neither_doubles_nor_loses_a_tick() {
    let transient = FaultKind::TRANSIENT.iter().copied();
    for fault in transient.chain([FaultKind::Crash]) {
        let mut strikes = 0;
        for at in 1..30 {
            let (requests, due, expected, fired) = fire_with(fault, at).await;
            assert_eq!(due, expected, "{fault:?} at request {at}");
            assert_eq!(fired, expected.len() as u64, "{fault:?} at request {at}");
            if requests < at {
                break;
            }
            strikes += 1;
        }
        // The swap of the record, the task, its ready entry and the second swap, at least.
        assert!(strikes >= 4, "{fault:?}: {strikes}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_caught_up_within_the_window() {
    for kind in KINDS {
        let bucket = Bucket::new();
        let queue = process(&bucket, bucket.objects(), kind).await;
        let mut spec = every(60);
        spec.catch_up_ms = 10 * 60 * SECOND;
        queue.schedules().add(NAME, spec).await.unwrap();
        // Nobody is there for an hour.
        bucket.runtime.sleep(Duration::from_hours(1)).await;
        let until = bucket.now().plus_millis(5 * SECOND);
        drive(&mut ScheduleDriver::new(queue.clone()), &bucket, until).await;
        let count = tasks(&queue).await.len();
        assert!((10..=11).contains(&count), "{count}");
        let info = queue.schedules().get(NAME).await.unwrap();
        assert!((49..=50).contains(&info.missed), "{}", info.missed);
    }
}

#[tokio::test(start_paused = true)]
async fn overlap_policies_look_at_unfinished_tasks() {
    let cases = [
        (Overlap::Allow, 3, 0),
        (Overlap::Skip, 1, 2),
        (Overlap::BufferOne, 1, 1),
        (Overlap::CancelRunning, 3, 0),
    ];
    for kind in KINDS {
        for (overlap, submitted, skipped) in cases {
            let bucket = Bucket::new();
            let queue = process(&bucket, bucket.objects(), kind).await;
            let mut spec = every(60);
            spec.overlap = overlap;
            queue.schedules().add(NAME, spec).await.unwrap();
            let mut driver = ScheduleDriver::new(queue.clone());
            let start = bucket.now();
            // Nobody works on the tasks.
            let until = every(60).ticks().unwrap().between(start, Timestamp::MAX, 3)[2];
            drive(&mut driver, &bucket, until.plus_millis(SECOND)).await;
            let info = queue.schedules().get(NAME).await.unwrap();
            assert_eq!(
                (info.fired, info.skipped),
                (submitted, skipped),
                "{overlap:?}"
            );
            let pending = tasks(&queue)
                .await
                .iter()
                .filter(|task| task.status == Status::Pending)
                .count() as u64;
            let live = if overlap == Overlap::CancelRunning {
                1
            } else {
                submitted
            };
            assert_eq!(pending, live, "{overlap:?}");
            if overlap == Overlap::BufferOne {
                assert!(info.buffered.is_some());
                complete_all(&queue).await;
                let until = bucket.now().plus_millis(25 * SECOND);
                drive(&mut driver, &bucket, until).await;
                let info = queue.schedules().get(NAME).await.unwrap();
                assert_eq!((info.fired, info.buffered), (2, None));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_the_due_times_after_each_tick() {
    const COUNT: usize = 20;
    const JITTER_MS: u64 = 30 * SECOND;
    for kind in KINDS {
        let bucket = Bucket::new();
        let queue = process(&bucket, bucket.objects(), kind).await;
        let mut spec = every(60);
        spec.jitter_ms = JITTER_MS;
        let rule = spec.ticks().unwrap();
        let added = queue.schedules().add(NAME, spec).await.unwrap();
        let before_first = added.next.unwrap().minus_millis(1);
        let ticks = rule.between(before_first, Timestamp::MAX, COUNT);
        let until = ticks[COUNT - 1].plus_millis(10 * SECOND);
        drive(&mut ScheduleDriver::new(queue.clone()), &bucket, until).await;
        let tasks = tasks(&queue).await;
        let fired: Vec<Timestamp> = tasks.iter().map(tick_of).collect();
        assert_eq!(fired, ticks, "{kind:?}");
        let mut delays = Vec::new();
        for task in &tasks {
            let (tick, due) = (tick_of(task), task.available_at);
            let latest = tick.plus_millis(JITTER_MS);
            assert!((tick..=latest).contains(&due), "{kind:?}: {tick} to {due}");
            delays.push(due.since(tick));
        }
        // Firing takes less than this, so the jitter delays some, and it delays each task by another time.
        let late = Duration::from_secs(5);
        assert!(delays.iter().any(|delay| *delay > late), "{delays:?}");
        delays.sort_unstable();
        delays.dedup();
        assert!(delays.len() > COUNT / 2, "{kind:?}: {delays:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_is_for_a_tick_before_the_start_or_after_the_end() {
    let bucket = Bucket::new();
    let queue = process(&bucket, bucket.objects(), Kind::Direct).await;
    // A whole minute, at which the cron line has a tick.
    let minute_ms = (bucket.now().minute() + 2) * 60 * SECOND;
    let at = |seconds: u64| Timestamp::MIN.plus_millis(minute_ms + seconds * SECOND);
    let cron = ScheduleSpec::cron("*/20 * * * * *", template());
    let listed = ScheduleSpec::at([0, 20, 40, 60, 80].map(at).to_vec(), template());
    for (name, mut spec) in [("cron", cron), ("listed", listed)] {
        spec.start = Some(at(20));
        spec.end = Some(at(60));
        queue.schedules().add(name, spec).await.unwrap();
    }
    let mut driver = ScheduleDriver::new(queue.clone());
    drive(&mut driver, &bucket, at(120)).await;
    let tasks = tasks(&queue).await;
    for name in ["cron", "listed"] {
        let tag = format!("schedule:{name}");
        let own = |task: &&Task| task.tags.iter().any(|known| known.as_str() == tag);
        let fired: Vec<Timestamp> = tasks.iter().filter(own).map(tick_of).collect();
        assert_eq!(fired, [at(20), at(40), at(60)], "{name}");
        let info = queue.schedules().get(name).await.unwrap();
        assert_eq!((info.next, info.missed), (None, 0), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backfill_submits_each_tick_of_the_range_once() {
    let bucket = Bucket::new();
    let queue = process(&bucket, bucket.objects(), Kind::Direct).await;
    let schedules = queue.schedules();
    schedules.add(NAME, every(60)).await.unwrap();
    let to = bucket.now();
    let from = to.minus_millis(10 * 60 * SECOND);
    let report = schedules.backfill(NAME, from, to).await.unwrap();
    assert!((10..=11).contains(&report.tasks.len()), "{report:?}");
    assert_eq!(report.existing, 0);
    let again = schedules.backfill(NAME, from, to).await.unwrap();
    assert_eq!(again.tasks, report.tasks);
    assert_eq!(again.existing, again.tasks.len());
    assert_eq!(tasks(&queue).await.len(), report.tasks.len());
    let future = to.plus_millis(60 * SECOND);
    for (from, to) in [(from, future), (to, from)] {
        let error = schedules.backfill(NAME, from, to).await.unwrap_err();
        assert_eq!(error, Error::BackfillRange);
    }
    let long_ago = Timestamp::from_millis(1_000);
    let error = schedules.backfill(NAME, long_ago, to).await.unwrap_err();
    assert!(matches!(error, Error::BackfillTooLarge { .. }), "{error}");
}

/// A schedule whose tasks have an ordering key that stops on failure.
fn ordered() -> ScheduleSpec {
    let mut spec = every(60);
    spec.task.ordering_key = Some("account 17".parse().unwrap());
    spec.task.ordering_on_failure = Some(OnFailure::Stop);
    spec
}

#[tokio::test(start_paused = true)]
async fn tasks_with_an_ordering_key_run_one_at_a_time() {
    for kind in KINDS {
        let bucket = Bucket::new();
        let [queue, other, _] = processes(&bucket, kind).await;
        let schedules = queue.schedules();
        schedules.add(NAME, ordered()).await.unwrap();
        assert_eq!(other.schedules().get(NAME).await.unwrap().spec, ordered());
        let mut driver = ScheduleDriver::new(queue.clone());
        drive(&mut driver, &bucket, bucket.now().plus_millis(130 * SECOND)).await;
        let mut expected: Vec<TaskId> = tasks(&queue).await.iter().map(|task| task.id).collect();
        assert_eq!(expected.len(), 2, "{kind:?}");
        let to = bucket.now();
        let from = to.minus_millis(200 * SECOND);
        let backfilled = schedules.backfill(NAME, from, to).await.unwrap().tasks;
        assert!(backfilled.len() >= 3, "{kind:?}");
        expected.extend(backfilled);
        expected.push(other.schedules().trigger(NAME).await.unwrap());
        for task in tasks(&queue).await {
            let key = task.ordering_key.as_ref().map(OrderingKey::as_str);
            assert_eq!(
                (key, task.ordering_on_failure),
                (Some("account 17"), OnFailure::Stop),
                "{kind:?}"
            );
        }
        let claim = ClaimRequest {
            max: 100,
            ..ClaimRequest::new("w".parse().unwrap(), vec!["report".parse().unwrap()])
        };
        for task in expected {
            let claimed = queue.claim(&claim).await.unwrap();
            let ids: Vec<TaskId> = claimed.iter().map(|task| task.id).collect();
            assert_eq!(ids, [task], "{kind:?}: one at a time, in submit order");
            let lease = claimed[0].lease_id.unwrap();
            queue.complete(task, lease, None).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_of_a_later_version_is_left_alone() {
    for kind in KINDS {
        let bucket = Bucket::new();
        let [queue, other, _] = processes(&bucket, kind).await;
        let schedules = queue.schedules();
        schedules.add(NAME, ordered()).await.unwrap();
        let id = DocumentId {
            kind: DocumentKind::Schedules,
            name: NAME.parse().unwrap(),
        };
        let query = DocumentQuery::one(&id);
        let stored = queue.engine().documents(&query).await.unwrap().remove(0);
        let mut body: serde_json::Value = stored.body.to_value().unwrap();
        assert_eq!(body["min_reader"], 2, "{kind:?}");
        body["min_reader"] = 3.into();
        body["spec"]["task"]["later"] = "kept".into();
        let body = Some(Json::from_value(&body).unwrap());
        let op = bucket.runtime.new_op_id();
        let write = DocumentWrite::new(id, Some(stored.version), body, op);
        let newer = queue.engine().write_document(write).await.unwrap();
        // Neither a driver nor an operator submits its tasks without what this version does not know.
        let mut driver = ScheduleDriver::new(other.clone());
        drive(&mut driver, &bucket, bucket.now().plus_millis(200 * SECOND)).await;
        let results = [
            schedules.get(NAME).await.map(|_| ()),
            schedules.trigger(NAME).await.map(|_| ()),
            schedules.pause(NAME).await.map(|_| ()),
            schedules.put(NAME, every(30)).await.map(|_| ()),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::NewerSchedule { .. }), "{error}");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        assert_eq!(tasks(&queue).await, [], "{kind:?}");
        let after = queue.engine().documents(&query).await.unwrap();
        assert_eq!(after.first(), newer.as_ref(), "{kind:?}");
        schedules.remove(NAME).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_driver_costs_few_requests() {
    let bucket = Bucket::new();
    let queue = process(&bucket, bucket.counted(), Kind::Direct).await;
    assert_eq!(queue.engine().duty(), Duty::Shared);
    let mut driver = ScheduleDriver::new(queue.clone());
    let hour = |from: Timestamp| from.plus_millis(60 * 60 * SECOND);
    let before = bucket.counts().requests();
    drive(&mut driver, &bucket, hour(bucket.now())).await;
    let idle = bucket.counts().requests() - before;
    assert!(idle <= 8, "without schedules: {idle} requests an hour");
    // A schedule that fires once a day costs nothing until then.
    queue
        .schedules()
        .add(NAME, ScheduleSpec::cron("0 0 1 1 *", template()))
        .await
        .unwrap();
    let before = bucket.counts().requests();
    drive(&mut driver, &bucket, hour(bucket.now())).await;
    let idle = bucket.counts().requests() - before;
    assert!(idle <= 10, "with a schedule: {idle} requests an hour");
    // A tick costs two writes of the record and those of a submit.
    queue.schedules().put(NAME, every(60)).await.unwrap();
    drive(&mut driver, &bucket, bucket.now().plus_millis(90 * SECOND)).await;
    let before = bucket.counts();
    drive(&mut driver, &bucket, hour(bucket.now())).await;
    let counts = bucket.counts();
    let spent = counts.since(&before);
    let kinds = [Operation::Put, Operation::Create, Operation::Swap];
    let writes: u64 = kinds.iter().map(|kind| spent.total(*kind).requests).sum();
    assert!(
        (60 * 4..=60 * 7).contains(&writes),
        "60 ticks: {writes} writes"
    );
}
