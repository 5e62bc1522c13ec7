//! The probe on real stores: it must trust the stores that qo supports, and reject them with broken conditions.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use qo_store::admin::{
    BucketAdmin, CorsRule, KeyedVersionList, LifecycleRule, VersionList, Versioning,
};
use qo_store::probe::{
    CheckName, CheckOutcome, ProbeError, ProbeOptions, ProbeReport, ProbedVersioning, REPORT_KEY,
    ensure_trusted, probe,
};
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::{CountingStore, FaultKind, FaultPlan, FaultStore, Operation};
use qo_store::{Store, StoreError};
use qo_testkit::{Azurite, SeaweedFs};

use crate::real_stores;

/// Shorter than the default, because a versioned bucket of SeaweedFS uses all of the time.
fn options() -> ProbeOptions {
    let mut probe = ProbeOptions::default();
    probe.budget = Duration::from_secs(4);
    probe
}

/// Prints the result past the output capture of the test harness, so that a log shows it.
fn print_result(store: &str, report: &ProbeReport) {
    let figures = &report.figures;
    let result = if report.trusted {
        "trusted".to_owned()
    } else {
        let names: Vec<_> = report.failures().map(|check| check.name.name()).collect();
        format!("rejected for {}", names.join(", "))
    };
    let mut stderr = std::io::stderr();
    writeln!(
        stderr,
        "probe: {store}: {result}, {} races of up to {} writers in {} ms",
        figures.create_rounds + figures.swap_rounds,
        figures.writers_max,
        figures.duration_ms
    )
    .unwrap();
}

async fn keys(objects: &dyn ObjectStore) -> Vec<String> {
    let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
    let keys = listed.into_iter().map(|meta| meta.location.to_string());
    keys.collect()
}

/// The store must be trusted, keep no probe keys, and be trusted again with a single GET.
async fn is_trusted(name: &str, store: Store, versioning: ProbedVersioning) {
    let runtime = TokioRuntime::shared();
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    let objects = Arc::clone(&counting) as Arc<dyn ObjectStore>;
    let noting = store.admin.clone().map(RecordingAdmin::new);
    let admin = noting.as_ref().map(|admin| admin as &dyn BucketAdmin);
    let report = ensure_trusted(&objects, admin, runtime.as_ref(), &options())
        .await
        .unwrap();
    print_result(name, &report);
    assert!(report.trusted, "{report}");
    let mut checks = report.checks.iter();
    assert!(
        checks.all(|check| check.outcome == CheckOutcome::Passed),
        "{report}"
    );
    assert_eq!(report.versioning, versioning);
    let figures = &report.figures;
    assert!(figures.create_rounds > 0 && figures.swap_rounds > 0);
    assert_eq!(figures.winners_max, 1);
    assert_eq!(keys(&store.objects).await, [REPORT_KEY]);
    if versioning == ProbedVersioning::On {
        noting.as_ref().unwrap().has_no_versions_left().await;
    }

    let before = counting.counts();
    let again = ensure_trusted(&objects, admin, runtime.as_ref(), &options())
        .await
        .unwrap();
    assert_eq!(again, report);
    let since = counting.counts().since(&before);
    assert_eq!(since.requests(), 1);
    assert_eq!(since.of("meta", Operation::Get).requests, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_trusted() {
    is_trusted("memory", real_stores::memory(), ProbedVersioning::Unknown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let store = real_stores::sqlite(&folder);
    is_trusted("SQLite", store, ProbedVersioning::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_with_versions_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let store = real_stores::sqlite(&folder);
    let admin = store.admin.clone().unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    is_trusted("SQLite with versions", store, ProbedVersioning::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_is_trusted() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("probe").unwrap();
    let store = real_stores::seaweedfs(&bucket);
    is_trusted("SeaweedFS", store, ProbedVersioning::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_with_versions_is_trusted() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_versioned_bucket("probe").unwrap();
    let store = real_stores::seaweedfs(&bucket);
    is_trusted("SeaweedFS with versions", store, ProbedVersioning::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn azurite_is_trusted() {
    let server = Azurite::start().unwrap();
    server.create_container("tests").unwrap();
    let store = real_stores::azurite(&server, "tests");
    is_trusted("Azurite", store, ProbedVersioning::Unknown).await;
}

/// The store with this fault must be rejected for these checks, and keep no probe keys.
async fn is_rejected(name: &str, store: &Store, kind: FaultKind, expected: &[CheckName]) -> String {
    let runtime = TokioRuntime::shared();
    let (inner, plan) = (Arc::clone(&store.objects), FaultPlan::always(kind));
    let faulty = FaultStore::new(inner, Arc::clone(&runtime), plan, 1);
    let objects = Arc::new(faulty) as Arc<dyn ObjectStore>;
    let admin = store.admin.as_deref();
    let report = probe(&objects, admin, runtime.as_ref(), &options())
        .await
        .unwrap();
    print_result(&format!("{name} with an injected {kind}"), &report);
    assert!(!report.trusted, "{report}");
    let failures: Vec<_> = report.failures().map(|check| check.name).collect();
    assert_eq!(failures, expected, "{report}");
    assert_eq!(keys(&store.objects).await, [""; 0]);
    ProbeError::Untrusted(Box::new(report)).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_ignored_condition_is_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let stores = [
        ("memory", real_stores::memory()),
        ("SQLite", real_stores::sqlite(&folder)),
    ];
    for (name, store) in stores {
        let expected = [
            CheckName::CreateRefusesExisting,
            CheckName::SwapRefusesStaleTag,
            CheckName::SwapRefusesMissing,
        ];
        let text = is_rejected(name, &store, FaultKind::IgnoredCondition, &expected).await;
        assert!(text.contains("If-None-Match is ignored"), "{text}");
        assert!(text.contains("If-Match is ignored"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_non_atomic_condition_is_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let stores = [
        ("memory", real_stores::memory()),
        ("SQLite", real_stores::sqlite(&folder)),
    ];
    for (name, store) in stores {
        let expected = [CheckName::CreateRace, CheckName::SwapRace];
        let text = is_rejected(name, &store, FaultKind::NonAtomicCondition, &expected).await;
        assert!(
            text.contains("writers won a race that only one can win"),
            "{text}"
        );
    }
}

/// A bucket admin that records the keys whose versions are listed, which the probe does for every key it wrote.
#[derive(Debug)]
struct RecordingAdmin {
    inner: Arc<dyn BucketAdmin>,
    listed: Mutex<BTreeSet<String>>,
}

impl RecordingAdmin {
    fn new(inner: Arc<dyn BucketAdmin>) -> Self {
        Self {
            inner,
            listed: Mutex::default(),
        }
    }

    async fn has_no_versions_left(&self) {
        let listed = self.listed.lock().unwrap().clone();
        assert!(listed.len() > 2, "{listed:?}");
        for key in listed {
            let left = self.inner.list_versions(&key, 10).await.unwrap();
            assert_eq!(left.versions, [], "{key}");
        }
    }
}

#[async_trait]
impl BucketAdmin for RecordingAdmin {
    async fn list_versions(&self, key: &str, limit: usize) -> Result<VersionList, StoreError> {
        self.listed.lock().unwrap().insert(key.to_owned());
        self.inner.list_versions(key, limit).await
    }

    async fn list_versions_below(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<KeyedVersionList, StoreError> {
        self.inner.list_versions_below(prefix, limit).await
    }

    async fn get_version(&self, key: &str, version: &str) -> Result<Bytes, StoreError> {
        self.inner.get_version(key, version).await
    }

    async fn delete_version(&self, key: &str, version: &str) -> Result<(), StoreError> {
        self.inner.delete_version(key, version).await
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        self.inner.versioning().await
    }

    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError> {
        self.inner.set_versioning(versioning).await
    }

    async fn cors(&self) -> Result<Vec<CorsRule>, StoreError> {
        self.inner.cors().await
    }

    async fn set_cors(&self, rules: &[CorsRule]) -> Result<(), StoreError> {
        self.inner.set_cors(rules).await
    }

    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError> {
        self.inner.lifecycle().await
    }

    async fn set_lifecycle(&self, rules: &[LifecycleRule]) -> Result<(), StoreError> {
        self.inner.set_lifecycle(rules).await
    }
}
