mod faulty_stores;

use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use futures_util::stream::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;

use self::faulty_stores::{FragileBucket, OddStore, SlowLock};
use super::*;
use crate::admin::Versioning;
use crate::runtime::TokioRuntime;
use crate::wrap::testing::PausableRuntime;
use crate::wrap::{
    CountingStore, Delay, FaultKind, FaultPlan, FaultRule, FaultStore, LatencyStore, Operation,
};

fn memory() -> Arc<InMemory> {
    Arc::new(InMemory::new())
}

fn faulty(
    memory: &Arc<InMemory>,
    runtime: &Arc<dyn Runtime>,
    plan: FaultPlan,
    seed: u64,
) -> Arc<FaultStore> {
    let inner = Arc::clone(memory) as Arc<dyn ObjectStore>;
    Arc::new(FaultStore::new(inner, Arc::clone(runtime), plan, seed))
}

async fn keys(memory: &InMemory) -> Vec<String> {
    let entries: Vec<_> = memory.list(None).try_collect().await.unwrap();
    entries
        .into_iter()
        .map(|meta| meta.location.to_string())
        .collect()
}

/// Probes an in-memory store with these faults and checks that no keys remain.
async fn probe_with(plan: FaultPlan) -> ProbeReport {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let objects = faulty(&memory, &runtime, plan, 1) as Arc<dyn ObjectStore>;
    let report = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert_eq!(keys(&memory).await, [""; 0]);
    report
}

fn failed(report: &ProbeReport) -> Vec<CheckName> {
    report.failures().map(|check| check.name).collect()
}

#[test]
fn the_probe_is_send() {
    fn is_send<T: Send>(_: &T) {}
    let runtime = TokioRuntime::shared();
    let objects = memory() as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    is_send(&ensure_trusted(&objects, None, runtime.as_ref(), &options));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_trusted_with_real_threads() {
    let runtime = TokioRuntime::shared();
    let memory = memory();
    let objects = Arc::clone(&memory) as Arc<dyn ObjectStore>;
    let report = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(report.trusted, "{report}");
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.outcome == CheckOutcome::Passed)
    );
    let figures = &report.figures;
    assert_eq!((figures.writers_max, figures.winners_max), (32, 1));
    assert_eq!((figures.create_rounds, figures.swap_rounds), (40, 40));
    assert!(figures.duration_ms < 1_000, "{report}");
    assert_eq!(keys(&memory).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_ignored_condition_is_detected_by_one_caller() {
    let report = probe_with(FaultPlan::always(FaultKind::IgnoredCondition)).await;
    assert!(!report.trusted);
    let names = [
        CheckName::CreateRefusesExisting,
        CheckName::SwapRefusesStaleTag,
        CheckName::SwapRefusesMissing,
    ];
    assert_eq!(failed(&report), names);
    let refusal = ProbeError::Untrusted(Box::new(report)).to_string();
    assert!(
        refusal.contains("If-None-Match is ignored (create_refuses_existing)"),
        "{refusal}"
    );
    assert!(refusal.contains("SeaweedFS"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_ignored_only_for_swaps_is_detected() {
    let rule = FaultRule::new(FaultKind::IgnoredCondition, 1.0).on([Operation::Swap]);
    let report = probe_with(FaultPlan::none().with(rule)).await;
    let names = [
        CheckName::SwapRefusesStaleTag,
        CheckName::SwapRefusesMissing,
    ];
    assert_eq!(failed(&report), names);
}

#[tokio::test(start_paused = true)]
async fn a_non_atomic_condition_is_detected_only_by_races() {
    let report = probe_with(FaultPlan::always(FaultKind::NonAtomicCondition)).await;
    assert_eq!(
        failed(&report),
        [CheckName::CreateRace, CheckName::SwapRace]
    );
    assert_eq!(report.figures.winners_max, 2);
    let create = report
        .checks
        .iter()
        .find(|check| check.name == CheckName::CreateRace);
    assert_eq!(
        create.unwrap().reason,
        "2 of 2 writers won a race that only one can win"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rarely_broken_condition_is_detected_by_many_races() {
    let rule = FaultRule::new(FaultKind::NonAtomicCondition, 0.05);
    let report = probe_with(FaultPlan::none().with(rule)).await;
    assert!(!report.trusted, "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_is_detected() {
    let report = probe_with(FaultPlan::always(FaultKind::StaleList)).await;
    assert_eq!(failed(&report), [CheckName::ListIsCurrent]);
    let rarely = FaultRule::new(FaultKind::StaleList, 0.3);
    let report = probe_with(FaultPlan::none().with(rarely)).await;
    assert_eq!(failed(&report), [CheckName::ListIsCurrent]);
}

#[tokio::test(start_paused = true)]
async fn a_store_with_failures_but_correct_responses_is_trusted() {
    for seed in 0..40 {
        let runtime = PausableRuntime::shared();
        let none = FaultPlan {
            burst: Duration::from_millis(50),
            ..FaultPlan::none()
        };
        let transient = FaultKind::TRANSIENT.iter().copied();
        let plan = none
            .with_each(
                transient.filter(|kind| *kind != FaultKind::DuplicateApply),
                0.01,
            )
            .with_each([FaultKind::Unavailable, FaultKind::TornRead], 0.01);
        let objects = faulty(&memory(), &runtime, plan, seed) as Arc<dyn ObjectStore>;
        let options = ProbeOptions::default();
        let report = probe(&objects, None, runtime.as_ref(), &options)
            .await
            .unwrap();
        assert!(report.trusted, "seed {seed}: {report}");
        assert_eq!(report.figures.winners_max, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn all_keys_are_removed_even_if_the_probe_fails() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let rule = FaultRule::new(FaultKind::LostRequest, 1.0).on([Operation::Get]);
    let store = faulty(&memory, &runtime, FaultPlan::none().with(rule), 1);
    let objects = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let error = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ProbeError::Store { .. }), "{error}");
    assert!(error.to_string().contains("no response"), "{error}");
    assert_eq!(keys(&memory).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_holds_on_a_slow_store() {
    let runtime = PausableRuntime::shared();
    let delay = Delay::Fixed(Duration::from_millis(300));
    let slow = LatencyStore::new(memory(), Arc::clone(&runtime), delay, 1);
    let objects = Arc::new(slow) as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    let report = ensure_trusted(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(report.trusted);
    assert!(report.figures.writers_max >= 8, "{report}");
    assert!(
        runtime.monotonic() <= options.budget,
        "{:?}: {report}",
        runtime.monotonic()
    );
}

#[tokio::test(start_paused = true)]
async fn a_very_slow_store_still_gets_one_race_of_each_kind() {
    let runtime = PausableRuntime::shared();
    let delay = Delay::Fixed(Duration::from_secs(3));
    let slow = LatencyStore::new(memory(), Arc::clone(&runtime), delay, 1);
    let objects = Arc::new(slow) as Arc<dyn ObjectStore>;
    let report = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(report.trusted, "{report}");
    let figures = &report.figures;
    assert_eq!(
        (
            figures.create_rounds,
            figures.swap_rounds,
            figures.writers_max
        ),
        (1, 1, 2)
    );
}

/// A store whose writers to one key wait for each other, except for the first `lucky` ones.
fn contended(runtime: &Arc<dyn Runtime>, wait: Duration, lucky: u32) -> Arc<dyn ObjectStore> {
    Arc::new(OddStore {
        lock: Some(SlowLock {
            runtime: Arc::clone(runtime),
            latest: tokio::sync::Mutex::default(),
            wait,
            lucky: AtomicU32::new(lucky),
        }),
        ..OddStore::new(memory())
    })
}

#[tokio::test(start_paused = true)]
async fn races_stay_small_if_a_contended_key_is_slow() {
    let runtime = PausableRuntime::shared();
    let objects = contended(&runtime, Duration::from_millis(500), 0);
    let options = ProbeOptions::default();
    let report = probe(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(report.trusted, "{report}");
    assert!(report.figures.writers_max <= 8, "{report}");
    assert!(
        runtime.monotonic() <= options.budget,
        "{:?}: {report}",
        runtime.monotonic()
    );
}

#[tokio::test(start_paused = true)]
async fn a_round_far_slower_than_smaller_ones_is_cut_off() {
    let runtime = PausableRuntime::shared();
    let objects = contended(&runtime, Duration::from_secs(2), 30);
    let options = ProbeOptions::default();
    let report = probe(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(report.trusted, "{report}");
    assert!(report.figures.writers_max >= 8, "{report}");
    let took = runtime.monotonic();
    assert!(took <= options.budget, "{took:?}: {report}");
}

#[tokio::test(start_paused = true)]
async fn a_store_without_responses_is_an_error_and_not_a_report() {
    let runtime = PausableRuntime::shared();
    let store = faulty(
        &memory(),
        &runtime,
        FaultPlan::none().at(1, FaultKind::Crash),
        1,
    );
    let objects = store as Arc<dyn ObjectStore>;
    let error = ensure_trusted(&objects, None, runtime.as_ref(), &ProbeOptions::default()).await;
    assert!(matches!(error, Err(ProbeError::Store { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_stored_report_costs_one_get() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let counting = Arc::new(CountingStore::new(memory.clone()));
    let objects = Arc::clone(&counting) as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    let first = ensure_trusted(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert_eq!(keys(&memory).await, [REPORT_KEY]);
    let before = counting.counts();
    let second = ensure_trusted(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert_eq!(first, second);
    let since = counting.counts().since(&before);
    assert_eq!(since.requests(), 1);
    assert_eq!(since.of("meta", Operation::Get).requests, 1);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_stored_report_is_replaced() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let objects = memory.clone() as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    let ensure = || ensure_trusted(&objects, None, runtime.as_ref(), &options);
    let good = ensure().await.unwrap();
    let with = |change: fn(&mut ProbeReport)| {
        let mut report = good.clone();
        change(&mut report);
        Bytes::from(serde_json::to_vec(&report).unwrap())
    };
    for (what, bytes) in [
        ("damaged", Bytes::from_static(b"{\"format\":1,")),
        ("hostile", Bytes::from(vec![b'['; 1_000_000])),
        ("of another form", with(|report| report.format = 2)),
        ("untrusted", with(|report| report.trusted = false)),
        (
            "copied",
            with(|report| {
                report.store_time = report.store_time.map(|time| time.minus_millis(3_600_000));
            }),
        ),
        ("without a time", with(|report| report.store_time = None)),
    ] {
        let key = Path::from(REPORT_KEY);
        memory.put(&key, bytes.into()).await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        let again = ensure().await.unwrap();
        assert!(again.probed_at > good.probed_at, "{what}");
        let stored = load_report(&objects, runtime.as_ref(), &options)
            .await
            .unwrap();
        assert_eq!(stored, Some(again), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_untrusted_bucket_is_rejected_each_time() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let plan = FaultPlan::always(FaultKind::IgnoredCondition);
    let objects = faulty(&memory, &runtime, plan, 1) as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    for _ in 0..2 {
        let refused = ensure_trusted(&objects, None, runtime.as_ref(), &options).await;
        assert!(matches!(refused, Err(ProbeError::Untrusted(_))));
    }
    let stored = load_report(&objects, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(!stored.unwrap().trusted);
}

#[tokio::test(start_paused = true)]
async fn a_trusted_store_that_breaks_with_versioning_is_detected() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let store = faulty(&memory, &runtime, FaultPlan::none(), 1);
    let objects = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let admin = FragileBucket::new(store);
    let options = ProbeOptions::default();
    let ensure = || ensure_trusted(&objects, Some(&admin), runtime.as_ref(), &options);
    let report = ensure().await.unwrap();
    assert_eq!(report.versioning, ProbedVersioning::Off);
    assert_eq!(ensure().await.unwrap(), report, "stored");

    admin.set_versioning(Versioning::On).await.unwrap();
    let Err(ProbeError::Untrusted(refused)) = ensure().await else {
        panic!("trusted a broken bucket");
    };
    assert_eq!(refused.versioning, ProbedVersioning::On);
    let refusal = ProbeError::Untrusted(refused).to_string();
    assert!(refusal.contains("versioning"), "{refusal}");
    let removed = admin.removed.lock().unwrap();
    assert!(!removed.is_empty() && removed.values().all(|versions| *versions == 2));
    assert!(
        removed.keys().all(|key| key.starts_with("probe/")),
        "{removed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn old_leftovers_of_a_killed_probe_are_removed() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    for name in ["probe/old/k", "probe/young/k", "tasks/old/k"] {
        memory.put(&Path::from(name), "x".into()).await.unwrap();
    }
    let store = OddStore {
        backdated: Some("/old/"),
        ..OddStore::new(Arc::clone(&memory))
    };
    let objects = Arc::new(store) as Arc<dyn ObjectStore>;
    let report = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(report.trusted, "{report}");
    assert_eq!(keys(&memory).await, ["probe/young/k", "tasks/old/k"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_conditional_reads_is_trusted() {
    let runtime = PausableRuntime::shared();
    let store = OddStore {
        sends_unchanged: true,
        ..OddStore::new(memory())
    };
    let objects = Arc::new(store) as Arc<dyn ObjectStore>;
    let report = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(report.trusted, "{report}");
    let get = report
        .checks
        .iter()
        .find(|check| check.name == CheckName::ConditionalGet);
    assert_eq!(get.unwrap().outcome, CheckOutcome::Failed);
}
