mod odd_stores;

use std::sync::atomic::AtomicU32;

use bytes::Bytes;
use futures_util::stream::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;

use self::odd_stores::{FragileBucket, OddStore, SlowLock};
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

/// Probes memory with this plan of faults and checks that nothing is left behind.
async fn probe_with(plan: FaultPlan) -> Verdict {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let objects = faulty(&memory, &runtime, plan, 1) as Arc<dyn ObjectStore>;
    let verdict = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert_eq!(keys(&memory).await, [""; 0]);
    verdict
}

fn failed(verdict: &Verdict) -> Vec<CheckName> {
    verdict.failures().map(|check| check.name).collect()
}

#[test]
fn the_probe_can_run_in_a_task_of_its_own() {
    fn is_send<T: Send>(_: &T) {}
    let runtime = TokioRuntime::shared();
    let objects = memory() as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    is_send(&ensure_trusted(&objects, None, runtime.as_ref(), &options));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_trusted_in_no_time_with_real_threads() {
    let runtime = TokioRuntime::shared();
    let memory = memory();
    let objects = Arc::clone(&memory) as Arc<dyn ObjectStore>;
    let verdict = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(verdict.trusted, "{verdict}");
    assert!(
        verdict
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Passed)
    );
    let figures = &verdict.figures;
    assert_eq!((figures.writers_max, figures.winners_max), (32, 1));
    assert_eq!((figures.create_rounds, figures.swap_rounds), (40, 40));
    assert!(figures.duration_ms < 1_000, "{verdict}");
    assert_eq!(keys(&memory).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_ignored_condition_is_found_by_one_caller() {
    let verdict = probe_with(FaultPlan::always(FaultKind::IgnoredCondition)).await;
    assert!(!verdict.trusted);
    let names = [
        CheckName::CreateRefusesExisting,
        CheckName::SwapRefusesStaleTag,
        CheckName::SwapRefusesMissing,
    ];
    assert_eq!(failed(&verdict), names);
    let refusal = ProbeError::Untrusted(Box::new(verdict)).to_string();
    assert!(
        refusal.contains("If-None-Match is ignored (create_refuses_existing)"),
        "{refusal}"
    );
    assert!(refusal.contains("SeaweedFS"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_is_ignored_for_swaps_alone_is_found() {
    let rule = FaultRule::new(FaultKind::IgnoredCondition, 1.0).on([Operation::Swap]);
    let verdict = probe_with(FaultPlan::none().with(rule)).await;
    let names = [
        CheckName::SwapRefusesStaleTag,
        CheckName::SwapRefusesMissing,
    ];
    assert_eq!(failed(&verdict), names);
}

#[tokio::test(start_paused = true)]
async fn a_non_atomic_condition_is_found_by_the_races_alone() {
    let verdict = probe_with(FaultPlan::always(FaultKind::NonAtomicCondition)).await;
    assert_eq!(
        failed(&verdict),
        [CheckName::CreateRace, CheckName::SwapRace]
    );
    assert_eq!(verdict.figures.winners_max, 2);
    let create = verdict
        .checks
        .iter()
        .find(|check| check.name == CheckName::CreateRace);
    assert_eq!(
        create.unwrap().reason,
        "2 of 2 writers won a race that one can win"
    );
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_rarely_breaks_is_found_in_many_races() {
    let rule = FaultRule::new(FaultKind::NonAtomicCondition, 0.05);
    let verdict = probe_with(FaultPlan::none().with(rule)).await;
    assert!(!verdict.trusted, "{verdict}");
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_is_found() {
    let verdict = probe_with(FaultPlan::always(FaultKind::StaleList)).await;
    assert_eq!(failed(&verdict), [CheckName::ListIsCurrent]);
    let rarely = FaultRule::new(FaultKind::StaleList, 0.3);
    let verdict = probe_with(FaultPlan::none().with(rarely)).await;
    assert_eq!(failed(&verdict), [CheckName::ListIsCurrent]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_sometimes_fails_but_never_lies_is_trusted() {
    for seed in 0..40 {
        let runtime = PausableRuntime::shared();
        let mut plan = FaultPlan {
            burst: Duration::from_millis(50),
            ..FaultPlan::none()
        };
        for kind in [
            FaultKind::LostRequest,
            FaultKind::LostResponse,
            FaultKind::LateApply,
            FaultKind::Conflict,
            FaultKind::ErrorAfterApply,
            FaultKind::Unavailable,
            FaultKind::TornRead,
        ] {
            plan = plan.with(FaultRule::new(kind, 0.01));
        }
        let objects = faulty(&memory(), &runtime, plan, seed) as Arc<dyn ObjectStore>;
        let options = ProbeOptions::default();
        let verdict = probe(&objects, None, runtime.as_ref(), &options)
            .await
            .unwrap();
        assert!(verdict.trusted, "seed {seed}: {verdict}");
        assert_eq!(verdict.figures.winners_max, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_removed_even_if_the_probe_cannot_finish() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let rule = FaultRule::new(FaultKind::LostRequest, 1.0).on([Operation::Get]);
    let store = faulty(&memory, &runtime, FaultPlan::none().with(rule), 1);
    let objects = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let error = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, ProbeError::Store { .. }), "{error}");
    assert!(error.to_string().contains("no answer"), "{error}");
    assert_eq!(keys(&memory).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_budget_holds_on_a_slow_store() {
    let runtime = PausableRuntime::shared();
    let delay = Delay::Fixed(Duration::from_millis(300));
    let slow = LatencyStore::new(memory(), Arc::clone(&runtime), delay, 1);
    let objects = Arc::new(slow) as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    let verdict = ensure_trusted(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(verdict.trusted);
    assert!(verdict.figures.writers_max >= 8, "{verdict}");
    assert!(
        runtime.monotonic() <= options.budget,
        "{:?}: {verdict}",
        runtime.monotonic()
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_so_slow_that_nothing_fits_still_gets_one_race_of_each_kind() {
    let runtime = PausableRuntime::shared();
    let delay = Delay::Fixed(Duration::from_secs(3));
    let slow = LatencyStore::new(memory(), Arc::clone(&runtime), delay, 1);
    let objects = Arc::new(slow) as Arc<dyn ObjectStore>;
    let verdict = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(verdict.trusted, "{verdict}");
    let figures = &verdict.figures;
    assert_eq!(
        (
            figures.create_rounds,
            figures.swap_rounds,
            figures.writers_max
        ),
        (1, 1, 2)
    );
}

/// A store whose writers to one key wait for each other, except for the first lucky ones.
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
async fn fan_out_stays_small_where_a_contended_key_is_slow() {
    let runtime = PausableRuntime::shared();
    let objects = contended(&runtime, Duration::from_millis(500), 0);
    let options = ProbeOptions::default();
    let verdict = probe(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(verdict.trusted, "{verdict}");
    assert!(verdict.figures.writers_max <= 8, "{verdict}");
    assert!(
        runtime.monotonic() <= options.budget,
        "{:?}: {verdict}",
        runtime.monotonic()
    );
}

#[tokio::test(start_paused = true)]
async fn a_round_that_is_far_slower_than_its_smaller_ones_is_cut() {
    let runtime = PausableRuntime::shared();
    let objects = contended(&runtime, Duration::from_secs(2), 30);
    let options = ProbeOptions::default();
    let verdict = probe(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert!(verdict.trusted, "{verdict}");
    assert!(verdict.figures.writers_max >= 8, "{verdict}");
    let took = runtime.monotonic();
    assert!(took <= options.budget, "{took:?}: {verdict}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_an_error_and_not_a_verdict() {
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
async fn a_remembered_verdict_costs_one_get() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let counting = Arc::new(CountingStore::new(memory.clone()));
    let objects = Arc::clone(&counting) as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    let first = ensure_trusted(&objects, None, runtime.as_ref(), &options)
        .await
        .unwrap();
    assert_eq!(keys(&memory).await, [VERDICT_KEY]);
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
async fn a_verdict_that_cannot_be_believed_is_made_anew() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let objects = memory.clone() as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    let ensure = || ensure_trusted(&objects, None, runtime.as_ref(), &options);
    let good = ensure().await.unwrap();
    let with = |change: fn(&mut Verdict)| {
        let mut verdict = good.clone();
        change(&mut verdict);
        Bytes::from(serde_json::to_vec(&verdict).unwrap())
    };
    for (what, bytes) in [
        ("damaged", Bytes::from_static(b"{\"format\":1,")),
        ("hostile", Bytes::from(vec![b'['; 1_000_000])),
        ("of another form", with(|verdict| verdict.format = 2)),
        ("untrusted", with(|verdict| verdict.trusted = false)),
        (
            "copied",
            with(|verdict| {
                verdict.store_time = verdict.store_time.map(|time| time.minus_millis(3_600_000));
            }),
        ),
        ("without a time", with(|verdict| verdict.store_time = None)),
    ] {
        let key = Path::from(VERDICT_KEY);
        memory.put(&key, bytes.into()).await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        let again = ensure().await.unwrap();
        assert!(again.probed_at > good.probed_at, "{what}");
        let remembered = recall(&objects, runtime.as_ref(), &options).await.unwrap();
        assert_eq!(remembered, Some(again), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_untrusted_bucket_is_refused_each_time() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let plan = FaultPlan::always(FaultKind::IgnoredCondition);
    let objects = faulty(&memory, &runtime, plan, 1) as Arc<dyn ObjectStore>;
    let options = ProbeOptions::default();
    for _ in 0..2 {
        let refused = ensure_trusted(&objects, None, runtime.as_ref(), &options).await;
        assert!(matches!(refused, Err(ProbeError::Untrusted(_))));
    }
    let remembered = recall(&objects, runtime.as_ref(), &options).await.unwrap();
    assert!(!remembered.unwrap().trusted);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_breaks_once_versioning_is_on_is_found_although_it_was_trusted_before() {
    let runtime = PausableRuntime::shared();
    let memory = memory();
    let store = faulty(&memory, &runtime, FaultPlan::none(), 1);
    let objects = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let admin = FragileBucket::new(store);
    let options = ProbeOptions::default();
    let ensure = || ensure_trusted(&objects, Some(&admin), runtime.as_ref(), &options);
    let verdict = ensure().await.unwrap();
    assert_eq!(verdict.versioning, ProbedVersioning::Off);
    assert_eq!(ensure().await.unwrap(), verdict, "remembered");

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
async fn leftovers_of_a_probe_that_died_are_removed_once_they_are_old() {
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
    let verdict = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(verdict.trusted, "{verdict}");
    assert_eq!(keys(&memory).await, ["probe/young/k", "tasks/old/k"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_conditional_reads_is_trusted_all_the_same() {
    let runtime = PausableRuntime::shared();
    let store = OddStore {
        sends_unchanged: true,
        ..OddStore::new(memory())
    };
    let objects = Arc::new(store) as Arc<dyn ObjectStore>;
    let verdict = probe(&objects, None, runtime.as_ref(), &ProbeOptions::default())
        .await
        .unwrap();
    assert!(verdict.trusted, "{verdict}");
    let get = verdict
        .checks
        .iter()
        .find(|check| check.name == CheckName::ConditionalGet);
    assert_eq!(get.unwrap().outcome, Outcome::Failed);
}
