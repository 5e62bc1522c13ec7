//! The maintenance runner at the default intervals.

use std::time::Duration;

use qo_core::keys::Key;
use qo_core::transition::{Failure, FailureKind};
use qo_core::{Status, WorkerId};
use qo_direct::DirectEngine;
use qo_direct::{Maintenance, MaintenanceConfig};
use qo_engine::api::WorkerInfo;
use qo_engine::{Engine, EngineError};
use qo_fixtures::Bucket;
use qo_store::runtime::Runtime;
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore, Prices};

use super::{claim, claim_request, complete, status, submit};
use crate::bucket::Engines as _;

#[tokio::test(start_paused = true)]
async fn a_dead_workers_task_is_claimed_by_another_within_62_seconds() {
    for head_start_ms in (0..30_000).step_by(3_100) {
        let bucket = Bucket::new();
        let (dying, other) = (bucket.engine(), bucket.engine());
        let maintenance = Maintenance::spawn(other.clone(), MaintenanceConfig::default());
        bucket
            .runtime
            .sleep(Duration::from_millis(head_start_ms))
            .await;
        let id = submit(&dying).await.id;
        claim(&dying).await;
        let died_at = bucket.runtime.monotonic();
        drop(dying);

        let mut claim_request = claim_request("other");
        claim_request.wait_ms = 120_000;
        let claimed = other.claim(&claim_request).await.unwrap();
        let took = bucket.runtime.monotonic().saturating_sub(died_at);
        assert_eq!((claimed[0].id, claimed[0].attempt), (id, 2));
        assert!(took <= Duration::from_secs(62), "{took:?}");
        assert!(took >= Duration::from_secs(31), "{took:?}");
        complete(&other, &claimed[0]).await;
        maintenance.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_monitor_that_has_been_idle_notices_a_claim_without_a_submit() {
    for quiet_seconds in [1, 29, 100, 200, 299, 400] {
        let bucket = Bucket::new();
        let (dying, other) = (bucket.engine(), bucket.engine());
        let id = submit(&dying).await.id;
        let maintenance = Maintenance::spawn(other.clone(), MaintenanceConfig::default());
        bucket.runtime.pass_seconds(quiet_seconds).await;
        // The first claim succeeds and signals that claims are being made. The next one does not signal again.
        complete(&dying, &claim(&dying).await).await;
        let second = submit(&dying).await.id;
        bucket.runtime.pass_seconds(28).await;
        assert_eq!(claim(&dying).await.id, second);
        drop(dying);
        bucket.runtime.pass_seconds(62).await;
        assert_eq!(status(&other, second).await, Status::Pending);
        assert_eq!(status(&other, id).await, Status::Completed);
        maintenance.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_without_an_entry_is_found_within_two_sweeps() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let maintenance = Maintenance::spawn(engine.clone(), MaintenanceConfig::default());
    bucket.runtime.pass_seconds(1_000).await;
    let id = submit(&engine).await.id;
    bucket.delete_all("ready").await;
    let mut claim_request = claim_request("w");
    claim_request.wait_ms = 700_000;
    let claimed = bucket.engine().claim(&claim_request).await.unwrap();
    assert_eq!(claimed[0].id, id);
    maintenance.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_bucket_costs_next_to_nothing() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    for _ in 0..100 {
        submit(&engine).await;
    }
    for task in super::claim_all(&engine).await {
        complete(&engine, &task).await;
    }
    engine.close().await;
    let day = Duration::from_hours(24);
    let mut last = None;
    for processes in 1..=2_u32 {
        let running: Vec<_> = (0..processes)
            .map(|_| Maintenance::spawn(bucket.engine(), MaintenanceConfig::default()))
            .collect();
        // The first complete pass is paid once.
        bucket.runtime.pass_seconds(7_200).await;
        let before = bucket.counts();
        bucket.runtime.sleep(day).await;
        let counts = bucket.counts().since(&before);
        let dollars = counts.dollars(&Prices::default()) * 30.0;
        println!("{processes} idle for a day, ${dollars:.3} a month:\n{counts}");
        for maintenance in running {
            maintenance.stop().await;
        }
        let added = dollars - last.replace(dollars).unwrap_or_default();
        // The first process sweeps for all of them.
        let limit = if processes == 1 { 0.5 } else { 0.4 };
        assert!(added < limit, "${added} a month");
    }
}

#[tokio::test(start_paused = true)]
async fn maintenance_stops_at_once_and_can_be_disabled() {
    let bucket = Bucket::new();
    let mut config = MaintenanceConfig::default();
    config.sweep_interval = Duration::ZERO;
    let maintenance = Maintenance::spawn(bucket.engine(), config);
    bucket.runtime.pass_seconds(1_000).await;
    assert_eq!(bucket.keys("meta").await, [""; 0], "no sweep was begun");
    let before = bucket.runtime.monotonic();
    maintenance.stop().await;
    assert_eq!(bucket.runtime.monotonic(), before);
    let counts = bucket.counts();
    bucket.runtime.pass_seconds(1_000).await;
    assert_eq!(bucket.counts(), counts);
    // Dropping the handle also stops it.
    drop(Maintenance::spawn(
        bucket.engine(),
        MaintenanceConfig::default(),
    ));
    bucket.runtime.pass_seconds(1).await;
    let counts = bucket.counts();
    bucket.runtime.pass_seconds(1_000).await;
    assert_eq!(bucket.counts(), counts);
}

#[tokio::test(start_paused = true)]
async fn maintenance_survives_an_unresponsive_store() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let id = submit(&engine).await.id;
    claim(&engine).await;
    let store = std::sync::Arc::new(FaultStore::new(
        bucket.objects(),
        bucket.runtime.clone(),
        FaultPlan::always(FaultKind::LostRequest),
        1,
    ));
    let maintenance = Maintenance::spawn(
        bucket.engine_on(store.clone()),
        MaintenanceConfig::default(),
    );
    bucket.runtime.pass_seconds(300).await;
    assert_eq!(status(&engine, id).await, Status::Running);
    store.set_plan(FaultPlan::none());
    bucket.runtime.pass_seconds(75).await;
    assert_eq!(status(&engine, id).await, Status::Pending);
    maintenance.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_task_finishes_after_the_faults_stop() {
    for seed in 0..12 {
        let bucket = Bucket::new();
        let transient = FaultPlan::none().with_each(FaultKind::TRANSIENT.iter().copied(), 0.05);
        let plan = transient.with_each([FaultKind::StaleList], 0.05);
        let store = FaultStore::new(bucket.objects(), bucket.runtime.clone(), plan, seed);
        let store = std::sync::Arc::new(store);
        let dying = bucket.engine_on(store.clone());
        let maintenance = Maintenance::spawn(
            bucket.engine_on(store.clone()),
            MaintenanceConfig::default(),
        );
        let mut accepted = Vec::new();
        for _ in 0..40 {
            if let Ok(submitted) = dying.submit(super::request()).await {
                accepted.push(submitted.task.id);
            }
            // Every other claim is abandoned, and so are those that got an error.
            for task in dying
                .claim(&claim_request("dying"))
                .await
                .unwrap_or_default()
            {
                if accepted.len() % 2 == 0 {
                    let lease = task.lease_id.unwrap();
                    let _ = dying.complete(task.id, lease, None).await;
                }
            }
        }
        assert!(accepted.len() >= 30, "{}", accepted.len());
        maintenance.stop().await;
        store.set_plan(FaultPlan::none());
        drop(dying);

        let heir = bucket.engine();
        let maintenance = Maintenance::spawn(heir.clone(), MaintenanceConfig::default());
        let deadline = bucket.runtime.monotonic() + Duration::from_mins(20);
        let mut open: Vec<_> = accepted.clone();
        while !open.is_empty() && bucket.runtime.monotonic() < deadline {
            let mut claim_request = claim_request("heir");
            claim_request.wait_ms = 10_000;
            claim_request.max = 10;
            for task in heir.claim(&claim_request).await.unwrap() {
                complete(&heir, &task).await;
            }
            let mut still_open = Vec::new();
            for id in open {
                if status(&heir, id).await != Status::Completed {
                    still_open.push(id);
                }
            }
            open = still_open;
        }
        assert_eq!(open, [], "seed {seed}");
        // Stale entries are deleted once an hour.
        bucket.runtime.pass_seconds(7_500).await;
        maintenance.stop().await;
        for prefix in ["ready", "later", "leases", "quarantine"] {
            assert_eq!(bucket.keys(prefix).await, [""; 0], "seed {seed}");
        }
    }
}

/// Makes every kind of change, and dies at some point.
async fn live_and_die(engine: &DirectEngine) -> Result<(), EngineError> {
    let id = engine.submit(super::request()).await?.task.id;
    for ending in 0..5 {
        let mut claim_request = claim_request("dying");
        claim_request.wait_ms = 10_000;
        let Some(task) = engine.claim(&claim_request).await?.pop() else {
            return Ok(());
        };
        let lease = task.lease_id.unwrap();
        match ending {
            0 => drop(engine.release(id, lease).await?),
            1 => drop(engine.snooze(id, lease, 1_000).await?),
            2 => drop(
                engine
                    .fail(
                        id,
                        lease,
                        Failure {
                            kind: FailureKind::Retryable,
                            error: "no".into(),
                        },
                    )
                    .await?,
            ),
            3 => {
                engine.complete(id, lease, None).await?;
                engine.replay(id).await?;
            }
            _ => drop(engine.renew(id, lease, Some(60_000)).await?),
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn another_worker_completes_the_task_of_a_dead_one() {
    let mut crashes = 0;
    for request in 1.. {
        let bucket = Bucket::new();
        let store = std::sync::Arc::new(FaultStore::new(
            bucket.objects(),
            bucket.runtime.clone(),
            FaultPlan::none().at(request, FaultKind::Crash),
            1,
        ));
        let dying = bucket.engine_on(store.clone());
        let mut lived = std::pin::pin!(live_and_die(&dying));
        tokio::select! {
            _ = &mut lived => {}
            () = bucket.runtime.pass_seconds(120) => {}
        }
        if !store.is_crashed() {
            break;
        }
        crashes += 1;
        let heir = bucket.engine();
        let maintenance = Maintenance::spawn(heir.clone(), MaintenanceConfig::default());
        let deadline = bucket.runtime.monotonic() + Duration::from_mins(20);
        for key in bucket.keys("tasks").await {
            let Ok(Key::Task(id)) = key.parse() else {
                panic!("{key}");
            };
            let mut claim_request = claim_request("heir");
            claim_request.wait_ms = 10_000;
            while status(&heir, id).await != Status::Completed {
                let now = bucket.runtime.monotonic();
                assert!(now < deadline, "after a crash at request {request}");
                for task in heir.claim(&claim_request).await.unwrap() {
                    complete(&heir, &task).await;
                }
            }
        }
        bucket.runtime.pass_seconds(7_500).await;
        maintenance.stop().await;
        for prefix in ["ready", "later", "leases", "quarantine"] {
            let left = bucket.keys(prefix).await;
            assert_eq!(left, [""; 0], "after a crash at request {request}");
        }
    }
    assert!(crashes > 30, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn silent_workers_are_reported_and_removed_after_a_day() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let worker: WorkerId = "w-1".parse().unwrap();
    let info = WorkerInfo::new(worker.clone(), bucket.now());
    engine.heartbeat(&info).await.unwrap();
    let threshold = Duration::from_mins(1);
    let health = engine.check_workers(threshold).await.unwrap();
    assert_eq!((health.healthy, health.stale), (1, vec![]));
    bucket.runtime.pass_seconds(61).await;
    let health = engine.check_workers(threshold).await.unwrap();
    assert_eq!((health.healthy, health.stale), (0, vec![worker.clone()]));
    bucket.runtime.pass_seconds(86_400).await;
    let health = engine.check_workers(threshold).await.unwrap();
    assert_eq!(health.removed, [worker]);
    assert_eq!(bucket.keys("workers").await, [""; 0]);
}
