//! The findings of the sweeper, and its cost.

use std::sync::Arc;

use qo_core::keys::Key;
use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{Json, Status, TaskId};
use qo_direct::DirectEngine;
use qo_direct::{SweepNext, SweepReport};
use qo_engine::Engine;
use qo_engine::api::{SubmitRequest, When};
use qo_fixtures::Bucket;
use qo_store::runtime::Runtime;
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, FaultStore, Operation};

use super::{claim, claim_all, complete, request, status, submit, submit_many};
use crate::bucket::Engines as _;

/// Steps until a pass is complete, and returns the sums.
async fn pass(engine: &DirectEngine) -> SweepReport {
    let mut sum = engine.sweep_step().await.unwrap();
    while sum.next == SweepNext::Continue {
        let step = engine.sweep_step().await.unwrap();
        sum.next = step.next;
        sum.listed += step.listed;
        sum.read += step.read;
        sum.repaired += step.repaired;
        sum.expired += step.expired;
        sum.stale += step.stale;
        sum.orphans += step.orphans;
        sum.quarantined += step.quarantined;
        sum.failed += step.failed;
        sum.left += step.left;
    }
    assert_eq!(sum.next, SweepNext::Rest);
    engine.close().await;
    sum
}

async fn finish_many(engine: &DirectEngine, count: usize) {
    submit_many(engine, count).await;
    for task in claim_all(engine).await {
        complete(engine, &task).await;
    }
    engine.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_died_before_its_ready_entry_is_found() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let due = submit(&engine).await;
    let mut later = request();
    later.available = When::InMillis(3_600_000);
    engine.submit(later).await.unwrap();
    let entries = [bucket.keys("ready").await, bucket.keys("later").await];
    assert_eq!(entries.concat().len(), 2);
    bucket.delete_all("ready").await;
    bucket.delete_all("later").await;

    let sweeper = bucket.engine();
    assert_eq!(pass(&sweeper).await.read, 0, "it may be on its way");
    bucket.runtime.pass_seconds(61).await;
    assert_eq!(pass(&sweeper).await.repaired, 2);
    let found = [bucket.keys("ready").await, bucket.keys("later").await];
    assert_eq!(found, entries);
    assert_eq!(claim(&bucket.engine()).await.id, due.id);
    assert_eq!(pass(&sweeper).await.repaired, 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_without_its_entry_is_found_without_a_lease_entry() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let sweeper = bucket.engine();
    let task_id = submit(&engine).await.id;
    let crashed = async |what: &str, expected: Status| {
        bucket.delete_all("ready").await;
        bucket.delete_all("later").await;
        bucket.delete_all("leases").await;
        bucket.runtime.pass_seconds(61).await;
        assert_eq!(pass(&sweeper).await.repaired, 1, "{what}");
        let keys = [
            bucket.keys("ready").await,
            bucket.keys("later").await,
            bucket.keys("leases").await,
        ];
        assert_eq!(keys.concat().len(), 1, "{what}: {keys:?}");
        assert_eq!(status(&sweeper, task_id).await, expected, "{what}");
    };
    let fresh = || bucket.engine();

    let task = claim(&engine).await;
    let lease = task.lease_id.unwrap();
    engine.release(task.id, lease).await.unwrap();
    crashed("release", Status::Pending).await;

    let task = claim(&fresh()).await;
    let failure = qo_core::transition::Failure {
        kind: qo_core::transition::FailureKind::Retryable,
        error: "no".into(),
    };
    let lease = task.lease_id.unwrap();
    engine.fail(task.id, lease, failure).await.unwrap();
    engine.close().await;
    crashed("fail", Status::Pending).await;

    claim(&fresh()).await;
    crashed("claim", Status::Running).await;
    assert_eq!(sweeper.check_leases().await.unwrap().expired, 1);
    sweeper.close().await;
    crashed("expiry", Status::Pending).await;

    let task = claim(&fresh()).await;
    complete(&engine, &task).await;
    engine.replay(task.id).await.unwrap();
    engine.close().await;
    crashed("replay", Status::Pending).await;
    assert_eq!(claim(&fresh()).await.id, task.id);
}

#[tokio::test(start_paused = true)]
async fn finished_tasks_cost_only_lists() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    finish_many(&engine, 5_000).await;
    bucket.runtime.pass_seconds(61).await;

    let sweeper = bucket.engine();
    let before = bucket.counts();
    assert_eq!(pass(&sweeper).await.read, 5_000);
    println!("first pass:\n{}", bucket.counts().since(&before));

    bucket.runtime.pass_seconds(300).await;
    let before = bucket.counts();
    let report = pass(&sweeper).await;
    let counts = bucket.counts().since(&before);
    println!("second pass:\n{counts}");
    assert_eq!((report.listed, report.read), (5_000, 0));
    assert_eq!(counts.total(Operation::Get).requests, 0);
    assert_eq!(counts.of("tasks", Operation::List).requests, 6);
    assert_eq!(counts.of("meta", Operation::Swap).requests, 2);
    assert_eq!(counts.requests(), 8);
}

#[tokio::test(start_paused = true)]
async fn each_finished_task_is_read_once_a_day_by_any_sweeper() {
    let bucket = Bucket::new();
    finish_many(&bucket.engine(), 300).await;
    bucket.runtime.pass_seconds(61).await;
    assert_eq!(pass(&bucket.engine()).await.read, 300);
    bucket.runtime.pass_seconds(3_600).await;
    // This process has no cache, so the tasks of the first ten minutes are read twice.
    assert_eq!(pass(&bucket.engine()).await.read, 300);
    let mut parts = Vec::new();
    for _ in 0..24 {
        bucket.runtime.pass_seconds(3_600).await;
        parts.push(pass(&bucket.engine()).await.read);
    }
    assert_eq!(parts.iter().sum::<usize>(), 300, "{parts:?}");
    assert!(parts.iter().all(|part| *part < 40), "{parts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_checked_once() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit_many(&engine, 2_000).await;
    bucket.runtime.pass_seconds(61).await;
    let sweeper = bucket.engine();
    assert_eq!(pass(&sweeper).await.repaired, 0);
    for _ in 0..3 {
        bucket.runtime.pass_seconds(300).await;
        let before = bucket.counts();
        assert_eq!(pass(&sweeper).await.read, 0);
        let counts = bucket.counts().since(&before);
        assert_eq!(counts.total(Operation::Get).requests, 0);
        assert_eq!(counts.total(Operation::Put).requests, 0);
    }
    // A new process has no cache, but does not read tasks that were written long before the last pass.
    bucket.runtime.pass_seconds(300).await;
    assert_eq!(pass(&bucket.engine()).await.read, 0);
}

#[tokio::test(start_paused = true)]
async fn another_process_continues_the_pass_of_a_dead_one() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    finish_many(&engine, 5_000).await;
    let last = submit(&engine).await;
    bucket.runtime.pass_seconds(61).await;

    let dying = bucket.engine();
    let step = dying.sweep_step().await.unwrap();
    assert_eq!((step.next, step.read), (SweepNext::Continue, 4_000));
    drop(dying);

    let heir = bucket.engine();
    let held = heir.sweep_step().await.unwrap();
    let SweepNext::NotBefore(until) = held.next else {
        panic!("{held:?}");
    };
    assert_eq!((held.listed, held.read), (0, 0));
    bucket.runtime.sleep(until.since(bucket.now())).await;
    let rest = pass(&heir).await;
    // The last task has an entry, which is compared with it once more.
    assert_eq!(rest.read, 1_001 + 1);
    assert_eq!(status(&heir, last.id).await, Status::Pending);
}

#[tokio::test(start_paused = true)]
async fn two_sweepers_at_once_do_the_work_of_one() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit_many(&engine, 100).await;
    bucket.delete_all("ready").await;
    bucket.runtime.pass_seconds(61).await;
    let (one, other) = (bucket.engine(), bucket.engine());
    let (first, second) = tokio::join!(one.sweep_step(), other.sweep_step());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.repaired + second.repaired, 100);
    assert_eq!(bucket.keys("ready").await.len(), 100);
    assert_eq!(claim_all(&engine).await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn unreadable_objects_are_quarantined_and_the_pass_continues() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let tasks = submit_many(&engine, 20).await;
    let broken = Key::Task(tasks[7].id).to_string();
    bucket.put(&broken, "{\"id\": \"half a rec").await;
    // A record of another task is just as unreadable.
    let swapped = Key::Task(tasks[8].id).to_string();
    let body = String::from_utf8(bucket.get(&Key::Task(tasks[9].id).to_string()).await).unwrap();
    bucket.put(&swapped, &body).await;
    bucket.put("tasks/5/README", "not a task").await;
    bucket.delete_all("ready").await;
    for stale in [&tasks[7], &tasks[8]] {
        let entry = qo_core::keys::IndexEntry::of(stale);
        bucket.put(&Key::Ready(entry).to_string(), "").await;
    }
    bucket.runtime.pass_seconds(61).await;

    let sweeper = bucket.engine();
    let report = pass(&sweeper).await;
    assert_eq!((report.quarantined, report.repaired), (2, 18));
    assert_eq!(report.stale, 2, "their entries lead nowhere now");
    // The second step of the pass lists the newest tasks, and the foreign object again.
    assert_eq!((report.left, report.failed), (2, 0));
    let mut expected = vec![
        format!("quarantine/{broken}"),
        format!("quarantine/{broken}.reason.json"),
        format!("quarantine/{swapped}"),
        format!("quarantine/{swapped}.reason.json"),
    ];
    expected.sort();
    assert_eq!(bucket.keys("quarantine").await, expected);
    assert_eq!(
        bucket.get(&format!("quarantine/{broken}")).await,
        b"{\"id\": \"half a rec"
    );
    let note = bucket
        .get(&format!("quarantine/{broken}.reason.json"))
        .await;
    let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
    assert!(
        note["reason"].as_str().unwrap().contains("cannot parse"),
        "{note}"
    );
    assert_eq!(note["key"], broken);
    assert_eq!(bucket.keys("tasks").await.len(), 19);
    assert_eq!(claim_all(&engine).await.len(), 18);
}

fn ordered(key: &str) -> SubmitRequest {
    SubmitRequest {
        ordering: Some(OrderingRule {
            key: key.parse().unwrap(),
            on_failure: OnFailure::Continue,
        }),
        ..request()
    }
}

#[tokio::test(start_paused = true)]
async fn the_line_of_a_damaged_head_continues_after_the_next_pass() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    // Pages and pages of other lines, which are in order.
    for number in 0..1_200 {
        let key = format!("other-{number}");
        engine.submit(ordered(&key)).await.unwrap();
    }
    assert_eq!(claim_all(&engine).await.len(), 1_200);
    let head = engine.submit(ordered("account")).await.unwrap().task;
    let running = claim(&engine).await;
    assert_eq!(running.id, head.id);
    let next = engine.submit(ordered("account")).await.unwrap().task;
    let waiting = engine.submit(ordered("account-2")).await.unwrap().task;
    let behind = engine.submit(ordered("account-2")).await.unwrap().task;
    // The first pass also tidies. The passes of the next hour do not.
    pass(&bucket.engine()).await;
    bucket.runtime.pass_seconds(300).await;

    // One head runs, the other waits.
    for damaged in [&head, &waiting] {
        let record = Key::Task(damaged.id).to_string();
        bucket.put(&record, "{\"id\": \"half a rec").await;
    }
    assert!(claim_all(&engine).await.is_empty());
    bucket.runtime.pass_seconds(61).await;
    // The line was changed just now.
    let last = engine.submit(ordered("account")).await.unwrap().task;
    let report = pass(&bucket.engine()).await;
    assert_eq!((report.quarantined, report.repaired), (2, 2));
    let claimed = claim_all(&engine).await;
    let mut ids: Vec<_> = claimed.iter().map(|task| task.id).collect();
    ids.sort();
    let mut expected = vec![next.id, behind.id];
    expected.sort();
    assert_eq!(ids, expected);
    for task in claimed.iter().filter(|task| task.id == next.id) {
        complete(&engine, task).await;
    }
    assert_eq!(claim(&engine).await.id, last.id);

    // The lines are walked once for it.
    bucket.runtime.pass_seconds(300).await;
    let report = pass(&bucket.engine()).await;
    assert!(report.listed < 1_300, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_deletes_nothing_and_is_retried() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let task = submit(&engine).await;
    let ready = bucket.keys("ready").await;
    bucket.delete_all("ready").await;
    let lost = TaskId::from_random(9);
    bucket.put(&Key::Task(lost).to_string(), "broken").await;
    bucket
        .put(
            &Key::Output {
                id: lost,
                attempt: 1,
            }
            .to_string(),
            "null",
        )
        .await;
    let lease = Key::Lease {
        minute: bucket.now().minute() + 10_000,
        id: task.id,
        attempt: 1,
    };
    bucket.put(&lease.to_string(), "").await;
    bucket.runtime.pass_seconds(2 * 86_400).await;

    let plan = |operation| {
        FaultPlan::none().with(
            FaultRule::new(FaultKind::LostRequest, 1.0)
                .on([operation])
                .under(["tasks"]),
        )
    };
    let store = Arc::new(FaultStore::new(
        bucket.objects(),
        bucket.runtime.clone(),
        plan(Operation::Get),
        1,
    ));
    let before = bucket.keys("").await;
    let sweeper = bucket.engine_on(store.clone());
    let report = pass(&sweeper).await;
    assert_eq!(report.failed, 4, "two tasks, a lease, a payload");
    assert_eq!(
        (report.stale, report.orphans, report.quarantined),
        (0, 0, 0)
    );
    let mut after = bucket.keys("").await;
    after.retain(|key| key != "meta/sweep.json");
    assert_eq!(after, before);

    store.set_plan(FaultPlan::none());
    let report = pass(&sweeper).await;
    assert_eq!((report.repaired, report.quarantined), (1, 1));
    assert_eq!(bucket.keys("ready").await, ready);
}

#[tokio::test(start_paused = true)]
async fn an_index_that_cannot_be_listed_does_not_stop_the_scan_of_tasks() {
    for prefix in ["ready", "later", "leases", "data"] {
        let bucket = Bucket::new();
        let rule = FaultRule::new(FaultKind::LostRequest, 1.0)
            .on([Operation::List])
            .under([prefix]);
        let store = FaultStore::new(
            bucket.objects(),
            bucket.runtime.clone(),
            FaultPlan::none().with(rule),
            1,
        );
        let sweeper = bucket.engine_on(Arc::new(store));
        for _ in 0..3 {
            submit(&bucket.engine()).await;
            bucket.delete_all("ready").await;
            bucket.runtime.pass_seconds(61).await;
            assert_eq!(pass(&sweeper).await.repaired, 1, "{prefix}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_expires_unclaimed_is_cancelled() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let mut expiring = request();
    expiring.expires = Some(When::InMillis(7_200_000));
    let id = engine.submit(expiring.clone()).await.unwrap().task.id;
    expiring.expires = Some(When::InMillis(30_000));
    let soon = engine.submit(expiring).await.unwrap().task.id;
    bucket.runtime.pass_seconds(61).await;
    let sweeper = bucket.engine();
    assert_eq!(pass(&sweeper).await.expired, 1);
    assert_eq!(status(&engine, soon).await, Status::Cancelled);
    // Other processes know it from the cursor, and read it when it is due.
    bucket.runtime.pass_seconds(7_100).await;
    let heir = bucket.engine();
    assert_eq!(pass(&heir).await.expired, 0);
    assert_eq!(status(&engine, id).await, Status::Pending);
    bucket.runtime.pass_seconds(100).await;
    assert_eq!(pass(&bucket.engine()).await.expired, 1);
    assert_eq!(status(&engine, id).await, Status::Cancelled);
    sweeper.close().await;
    heir.close().await;
    bucket.runtime.pass_seconds(1).await;
    assert_eq!(bucket.keys("ready").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn stale_entries_are_deleted_within_an_hour() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let task = submit(&engine).await;
    let entry = qo_core::keys::IndexEntry::of(&task);
    let mut long = super::claim_request("w");
    long.lease_ms = Some(36_000_000);
    let task = engine.claim(&long).await.unwrap().remove(0);
    let right = bucket.keys("leases").await;
    engine.close().await;
    let future = qo_core::keys::IndexEntry {
        available_at: bucket.now().plus_millis(86_400_000),
        ..entry.clone()
    };
    let minute = bucket.now().minute();
    for key in [
        Key::Ready(entry),
        Key::Later(future),
        Key::Lease {
            minute: minute + 100,
            id: task.id,
            attempt: 1,
        },
        // This entry is ahead of the task: a renewal may be about to need it.
        Key::Lease {
            minute: minute + 700,
            id: task.id,
            attempt: 1,
        },
    ] {
        bucket.put(&key.to_string(), "").await;
    }
    bucket.put("ready/default/noop/readme", "").await;
    bucket.runtime.pass_seconds(61).await;
    let report = pass(&bucket.engine()).await;
    assert_eq!((report.stale, report.left), (3, 1));
    assert_eq!(bucket.keys("ready").await, ["ready/default/noop/readme"]);
    assert_eq!(bucket.keys("later").await, [""; 0]);
    let leases = bucket.keys("leases").await;
    assert_eq!(leases.len(), 2);
    assert_eq!(leases[0], right[0]);
}

#[tokio::test(start_paused = true)]
async fn stale_entries_are_found_in_every_queue_and_type() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    for queue in ["a", "a-b", "a.b", "b"] {
        for task_type in ["x", "x-y", "x.y", "y"] {
            let mut request = request();
            request.queue = queue.parse().unwrap();
            request.task_type = task_type.parse().unwrap();
            let task = engine.submit(request.clone()).await.unwrap().task;
            engine.cancel(task.id, None).await.unwrap();
            engine.close().await;
            let stale = Key::Ready(qo_core::keys::IndexEntry::of(&task));
            bucket.put(&stale.to_string(), "").await;
            engine.submit(request).await.unwrap();
        }
    }
    bucket.put("ready/no queue/x/file", "").await;
    assert_eq!(bucket.keys("ready").await.len(), 33);
    bucket.runtime.pass_seconds(61).await;
    let report = pass(&bucket.engine()).await;
    assert_eq!((report.stale, report.failed), (16, 0));
    assert_eq!(bucket.keys("ready").await.len(), 17);
}

#[tokio::test(start_paused = true)]
async fn unreferenced_payloads_are_deleted_after_a_day() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let large = Json::parse(format!("\"{}\"", "x".repeat(100_000))).unwrap();
    let mut request = request();
    request.input = large.clone();
    let kept = engine.submit(request.clone()).await.unwrap().task;
    let task = claim(&engine).await;
    engine
        .complete(task.id, task.lease_id.unwrap(), Some(large.clone()))
        .await
        .unwrap();
    // A submit that died before it wrote its task, and one that lost to a task with the same id.
    let orphan = engine.submit(request).await.unwrap().task;
    bucket.delete(&Key::Task(orphan.id).to_string()).await;
    let referred = engine.input(&kept).await.unwrap();
    let other = Key::Input {
        id: kept.id,
        sha256: qo_core::Sha256::from_bytes([7; 32]),
    };
    bucket.put(&other.to_string(), "null").await;
    // The payload of a quarantined record may be needed again.
    let broken = TaskId::from_random(5);
    bucket.put(&Key::Task(broken).to_string(), "broken").await;
    let needed = Key::Output {
        id: broken,
        attempt: 1,
    };
    bucket.put(&needed.to_string(), "null").await;

    bucket.runtime.pass_seconds(86_000).await;
    let sweeper = bucket.engine();
    assert_eq!(pass(&sweeper).await.orphans, 0);
    bucket.runtime.pass_seconds(3_600).await;
    assert_eq!(pass(&sweeper).await.orphans, 2);
    assert_eq!(engine.input(&kept).await.unwrap(), referred);
    let kept = engine.get(kept.id).await.unwrap();
    assert_eq!(engine.output(&kept).await.unwrap(), Some(large));
    let data = bucket.keys("data").await;
    assert_eq!(data.len(), 3, "{data:?}");
    assert!(data.contains(&needed.to_string()));
    assert!(bucket.runtime.now() > kept.updated_at);
}
