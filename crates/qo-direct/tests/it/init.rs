//! Preparation of a bucket.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult};
use qo_core::keys::BROKER_KEY;
use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{DocumentId, DocumentKind, Json, OpId, Status};
use qo_direct::{
    DoctorOptions, Health, IndexMode, InitOptions, InitOutcome, InitReport, doctor, init,
};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, DocumentWrite, SubmitRequest, When};
use qo_fixtures::{LayeredStore, StoreLayer};
use qo_store::StoreError;
use qo_store::admin::{
    BucketAdmin, CorsRule, KeyedVersionList, LifecycleRule, ObjectVersion, VersionList, Versioning,
};
use qo_store::runtime::RuntimeExt as _;
use qo_testkit::SeaweedFs;

use super::stores::{self, OpenStore};

fn options() -> InitOptions {
    let mut options = InitOptions::default();
    stores::quick_probe(&mut options.probe);
    options
}

async fn run(opened: &OpenStore, options: &InitOptions) -> InitReport {
    init(&opened.store, opened.runtime.as_ref(), options).await
}

fn outcome(report: &InitReport, name: &str) -> InitOutcome {
    let step = report.steps.iter().find(|step| step.name == name);
    step.unwrap_or_else(|| panic!("no step {name}: {report}"))
        .outcome
}

fn foreign_rule() -> LifecycleRule {
    LifecycleRule {
        id: "somebody-else".to_owned(),
        prefix: "logs/".to_owned(),
        expire_days: Some(30),
        expire_noncurrent_days: None,
        expire_delete_markers: false,
        abort_multipart_days: None,
    }
}

fn foreign_cors() -> CorsRule {
    CorsRule {
        allowed_origins: vec!["https://other.example.org".to_owned()],
        allowed_methods: vec!["GET".to_owned()],
        allowed_headers: vec!["*".to_owned()],
        expose_headers: vec![],
        max_age_seconds: 60,
    }
}

/// Prepares a bucket with foreign rules, and checks every setting.
async fn prepares_and_prepares_again(opened: OpenStore, was_versioned: bool) {
    let admin = opened.store.admin.clone().unwrap();
    admin.set_lifecycle(&[foreign_rule()]).await.unwrap();
    admin.set_cors(&[foreign_cors()]).await.unwrap();
    let before = admin.versioning().await.unwrap();

    let mut dry = options();
    dry.dry_run = true;
    let report = run(&opened, &dry).await;
    assert!(report.is_ready(), "{report}");
    for name in ["trusted", "cors", "lifecycle"] {
        assert_eq!(outcome(&report, name), InitOutcome::WouldDo, "{report}");
    }
    assert_eq!(admin.versioning().await.unwrap(), before);
    assert_eq!(admin.lifecycle().await.unwrap(), [foreign_rule()]);
    assert_eq!(admin.cors().await.unwrap(), [foreign_cors()]);
    let written = opened.client.page("", None, 10).await.unwrap().entries;
    assert!(written.is_empty(), "{written:?}");

    let report = run(&opened, &options()).await;
    assert!(report.is_ready(), "{report}");
    for name in ["trusted", "cors", "lifecycle"] {
        assert_eq!(outcome(&report, name), InitOutcome::Done, "{report}");
    }
    let versioning = if was_versioned {
        InitOutcome::Unchanged
    } else {
        InitOutcome::Done
    };
    assert_eq!(outcome(&report, "versioning"), versioning, "{report}");
    assert_eq!(admin.versioning().await.unwrap(), Versioning::On);
    let rules = admin.lifecycle().await.unwrap();
    assert!(rules.contains(&foreign_rule()), "{rules:?}");
    let prefixes =
        "ready/ later/ leases/ order/ limits/ workers/ meta/ probe/ blobs/ slate/ queue.json";
    let prefixes: Vec<_> = prefixes.split(' ').collect();
    assert_eq!(rules.len(), 1 + prefixes.len(), "{rules:?}");
    // A leading broker writes this every 15 s.
    assert!(prefixes.iter().any(|prefix| BROKER_KEY.starts_with(prefix)));
    for prefix in prefixes {
        let rule = rules.iter().find(|rule| rule.prefix == prefix).unwrap();
        assert!(rule.id.starts_with("qo-"), "{rule:?}");
        assert_eq!(rule.expire_days, None, "{rule:?}");
        assert_eq!(rule.expire_noncurrent_days, Some(1), "{rule:?}");
        assert_eq!(rule.abort_multipart_days, Some(1), "{rule:?}");
        assert!(rule.expire_delete_markers, "{rule:?}");
    }
    let cors = admin.cors().await.unwrap();
    assert_eq!(cors.len(), 2, "{cors:?}");
    assert_eq!(cors[0], foreign_cors());

    let again = run(&opened, &options()).await;
    for step in &again.steps {
        assert_eq!(step.outcome, InitOutcome::Unchanged, "{again}");
    }
    assert_eq!(admin.lifecycle().await.unwrap(), rules);

    // Other origins replace qo's own rule, and no other.
    let mut moved = options();
    moved.cors_origins = vec!["https://qo.example.org".to_owned()];
    let report = run(&opened, &moved).await;
    assert_eq!(outcome(&report, "cors"), InitOutcome::Done, "{report}");
    let cors = admin.cors().await.unwrap();
    assert_eq!(cors.len(), 2, "{cors:?}");
    assert_eq!(cors[1].allowed_origins, ["https://qo.example.org"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn prepares_sqlite() {
    prepares_and_prepares_again(stores::sqlite(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepares_seaweedfs() {
    prepares_and_prepares_again(stores::seaweedfs(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepares_seaweedfs_with_versions() {
    prepares_and_prepares_again(stores::seaweedfs_versioned(), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_settings_reports_what_it_cannot_do() {
    let report = run(&stores::memory(), &options()).await;
    assert!(report.is_ready(), "{report}");
    assert_eq!(outcome(&report, "trusted"), InitOutcome::Done);
    for name in ["versioning", "cors", "lifecycle"] {
        assert_eq!(outcome(&report, name), InitOutcome::Unsupported);
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["steps"][2]["outcome"], "unsupported");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_not_requested_stay_unchanged() {
    let opened = stores::sqlite();
    let mut asked = options();
    asked.versioning = false;
    asked.cors_origins = Vec::new();
    let report = run(&opened, &asked).await;
    assert!(report.is_ready(), "{report}");
    assert_eq!(outcome(&report, "versioning"), InitOutcome::Skipped);
    assert_eq!(outcome(&report, "cors"), InitOutcome::Skipped);
    let admin = opened.store.admin.unwrap();
    assert_eq!(admin.versioning().await.unwrap(), Versioning::Off);
    assert_eq!(admin.cors().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_queues_in_one_bucket_keep_their_rules_apart() {
    let server = SeaweedFs::shared().unwrap();
    let name = server.unique_bucket("ops").unwrap();
    let mut asked = options();
    asked.versioning = false;
    for prefix in ["/one", "/two", "/one"] {
        let report = run(&stores::bucket(&format!("{name}{prefix}")), &asked).await;
        assert!(report.is_ready(), "{report}");
    }
    for prefix in ["/one", "/two"] {
        let admin = stores::bucket(&format!("{name}{prefix}"))
            .store
            .admin
            .unwrap();
        assert_eq!(admin.lifecycle().await.unwrap().len(), 11, "{prefix}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_bucket_is_refused_with_advice() {
    let opened = stores::bucket("qo-there-is-no-such-bucket");
    let report = run(&opened, &options()).await;
    assert!(!report.is_ready());
    assert_eq!(report.steps.len(), 1, "{report}");
    assert!(report.to_string().contains("aws s3 mb"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn versioning_is_switched_back_where_it_breaks_conditional_writes() {
    let (ceph, opened) = ceph();

    let report = run(&opened, &options()).await;
    assert!(!report.is_ready(), "{report}");
    assert_eq!(outcome(&report, "trusted"), InitOutcome::Done, "{report}");
    assert_eq!(outcome(&report, "versioning"), InitOutcome::Refused);
    assert!(report.to_string().contains("switched back"), "{report}");
    assert!(ceph.0.0.was_versioned.load(Ordering::SeqCst));
    assert_ne!(ceph.versioning().await.unwrap(), Versioning::On);
    // The rest is still prepared, and without versions the bucket can be used.
    assert_eq!(outcome(&report, "lifecycle"), InitOutcome::Unsupported);
    let mut without = options();
    without.versioning = false;
    let report = run(&opened, &without).await;
    assert!(report.is_ready(), "{report}");
}

fn ceph() -> (Ceph, OpenStore) {
    let ceph = Ceph(Arc::new(LayeredStore(RightUntilVersioned::default())));
    let mut store = stores::memory().store;
    store.objects = Arc::clone(&ceph.0) as _;
    store.admin = Some(Arc::new(ceph.clone()));
    (ceph, OpenStore::new(store))
}

fn work() -> SubmitRequest {
    SubmitRequest::new("work".parse().unwrap(), Json::null())
}

fn claim_request() -> ClaimRequest {
    ClaimRequest::new("w-1".parse().unwrap(), vec!["work".parse().unwrap()])
}

#[tokio::test(flavor = "multi_thread")]
async fn versioning_is_not_switched_on_in_a_bucket_in_use() {
    let heartbeat = |key: &'static str| async move {
        let (ceph, opened) = ceph();
        opened.client.put(key, Bytes::from("{}")).await.unwrap();
        (ceph, opened)
    };
    let submitted = || async {
        let (ceph, opened) = ceph();
        let engine = opened.engine_in(IndexMode::IndexOnly);
        engine.submit(work()).await.unwrap();
        engine.close().await;
        (ceph, opened)
    };
    let claimed = || async {
        let (ceph, opened) = submitted().await;
        let engine = opened.engine_in(IndexMode::IndexOnly);
        assert_eq!(engine.claim(&claim_request()).await.unwrap().len(), 1);
        (ceph, opened)
    };
    for (used, what) in [
        (heartbeat("workers/w-1.json").await, "1 worker is alive"),
        (heartbeat("meta/broker.json").await, "a broker is alive"),
        (submitted().await, "tasks were"),
        (claimed().await, "tasks were"),
    ] {
        let (ceph, opened) = used;
        let report = run(&opened, &options()).await;
        assert!(report.is_ready(), "{report}");
        assert_eq!(outcome(&report, "versioning"), InitOutcome::Skipped);
        assert!(report.to_string().contains(what), "{what}: {report}");
        assert!(!ceph.0.0.was_versioned.load(Ordering::SeqCst), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_refuse_every_change_are_named() {
    let (ceph, opened) = ceph();
    let engine = opened.engine_in(IndexMode::IndexOnly);
    // A client submits while versioning is on for a moment.
    ceph.set_versioning(Versioning::On).await.unwrap();
    let stranded = engine.submit(work()).await.unwrap().task.id;
    let scheduled = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..work()
    };
    let scheduled = engine.submit(scheduled).await.unwrap().task.id;
    let behind_key = SubmitRequest {
        ordering: Some(OrderingRule {
            key: "account 7".parse().unwrap(),
            on_failure: OnFailure::Continue,
        }),
        available: When::InMillis(3_600_000),
        ..work()
    };
    engine.submit(behind_key).await.unwrap();
    let limit = DocumentId {
        kind: DocumentKind::Limits,
        name: "stripe".parse().unwrap(),
    };
    let body = Json::parse(r#"{"limit_key":"stripe","concurrent":10}"#).unwrap();
    let write = DocumentWrite::new(limit, None, Some(body), OpId::from_random(1));
    engine.write_document(write).await.unwrap();
    let slot = r#"{"limit":"stripe","revision":1,"op_id":"550e8400-e29b-41d4-a716-446655440000"}"#;
    let slot = Bytes::from(slot);
    opened.client.put("limits/stripe.json", slot).await.unwrap();
    ceph.set_versioning(Versioning::Suspended).await.unwrap();
    let sound = engine.submit(work()).await.unwrap().task.id;

    let mut request = claim_request();
    request.max = 10;
    for _ in 0..8 {
        let claimed = engine.claim(&request).await.unwrap();
        assert!(claimed.iter().all(|task| task.id == sound), "{claimed:?}");
        for task in claimed {
            let lease = task.lease_id.unwrap();
            engine.complete(task.id, lease, None).await.unwrap();
        }
    }
    assert_eq!(engine.get(sound).await.unwrap().status, Status::Completed);
    let error = engine.cancel(stranded, None).await.unwrap_err().to_string();
    assert!(error.contains(&stranded.to_string()), "{error}");
    assert!(error.contains("refuses every change"), "{error}");

    let mut options = DoctorOptions::default();
    options.probe.budget = Duration::from_secs(4);
    options.probe.writers_max = 4;
    options.probe.rounds_max = 1;
    options.overdue_after = Duration::ZERO;
    let runtime = opened.runtime.as_ref();
    let report = doctor(&opened.store, &opened.client, runtime, &options).await;
    let swaps = report.check("swaps").unwrap();
    assert_eq!(swaps.health, Health::Failed, "{report}");
    for named in [
        stranded.to_string().as_str(),
        &scheduled.to_string(),
        "order/",
        "limits/stripe.json",
    ] {
        assert!(swaps.summary.contains(named), "{named}: {report}");
    }
    // The task with the ordering key is the fifth.
    assert_eq!(swaps.figures["refused"], 5, "{report}");
    assert!(report.to_string().contains("--rescue"), "{report}");

    // A rescue is refused while the bucket is in use.
    options.rescue = true;
    let report = doctor(&opened.store, &opened.client, runtime, &options).await;
    let swaps = report.check("swaps").unwrap();
    assert_eq!(swaps.health, Health::Failed, "{report}");
    assert!(swaps.summary.contains("a moment ago"), "{report}");
    assert!(engine.cancel(stranded, None).await.is_err());

    // Nobody has used the bucket for a while: here by its clock, which the store's objects do not follow.
    engine.close().await;
    let now = opened.runtime.moment();
    let later = now.wall.plus_millis(10 * 60_000);
    opened.store.clock.observe(now, now, later);
    let report = doctor(&opened.store, &opened.client, runtime, &options).await;
    let swaps = report.check("swaps").unwrap();
    assert_eq!(swaps.health, Health::Ok, "{report}");
    // The document of the limit, too.
    assert!(swaps.figures["rescued"] >= 6, "{report}");
    let task = engine.cancel(stranded, None).await.unwrap();
    assert_eq!(task.status, Status::Cancelled, "it can be changed again");
}

/// A store whose conditions hold on a plain bucket and are ignored on a versioned one, as those of Ceph RGW 20 are.
#[derive(Debug, Default)]
struct RightUntilVersioned {
    objects: object_store::memory::InMemory,
    versioned: AtomicBool,
    was_versioned: AtomicBool,
    /// The objects that were written while versioning was on. They refuse every swap from then on.
    stranded: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl StoreLayer for RightUntilVersioned {
    fn inner(&self) -> &dyn ObjectStore {
        &self.objects
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        if self.versioned.load(Ordering::SeqCst) {
            opts.mode = PutMode::Overwrite;
            self.stranded.lock().unwrap().insert(location.to_string());
        } else if opts.mode == PutMode::Overwrite {
            // A plain object takes the place of the other.
            self.stranded.lock().unwrap().remove(location.as_ref());
        } else if matches!(opts.mode, PutMode::Update(_))
            && self.stranded.lock().unwrap().contains(location.as_ref())
        {
            return Err(object_store::Error::Precondition {
                path: location.to_string(),
                source: "At least one of the preconditions did not hold".into(),
            });
        }
        self.objects.put_opts(location, payload, opts).await
    }
}

fn unsupported<T>(operation: &'static str) -> Result<T, StoreError> {
    Err(StoreError::Unsupported {
        operation,
        detail: "the store answered 501 NotImplemented".to_owned(),
    })
}

/// The administration of such a store.
#[derive(Debug, Clone)]
struct Ceph(Arc<LayeredStore<RightUntilVersioned>>);

#[async_trait]
impl BucketAdmin for Ceph {
    async fn list_versions(&self, key: &str, _limit: usize) -> Result<VersionList, StoreError> {
        let mut list = VersionList::default();
        if let Ok(meta) = self.0.head(&Path::from(key)).await {
            list.versions.push(ObjectVersion {
                version: "null".to_owned(),
                last_modified: qo_core::Timestamp::from_millis(0),
                is_latest: true,
                is_delete_marker: false,
                size: meta.size,
                e_tag: meta.e_tag,
            });
        }
        Ok(list)
    }

    async fn list_versions_below(
        &self,
        _prefix: &str,
        _limit: usize,
    ) -> Result<KeyedVersionList, StoreError> {
        unsupported("listing versions below a prefix")
    }

    async fn get_version(&self, _key: &str, _version: &str) -> Result<Bytes, StoreError> {
        unsupported("getting a version")
    }

    async fn delete_version(&self, key: &str, _version: &str) -> Result<(), StoreError> {
        let _ = self.0.delete(&Path::from(key)).await;
        Ok(())
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        let states = (&self.0.0.versioned, &self.0.0.was_versioned);
        Ok(
            match (
                states.0.load(Ordering::SeqCst),
                states.1.load(Ordering::SeqCst),
            ) {
                (true, _) => Versioning::On,
                (false, true) => Versioning::Suspended,
                (false, false) => Versioning::Off,
            },
        )
    }

    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError> {
        let on = versioning == Versioning::On;
        self.0.0.versioned.store(on, Ordering::SeqCst);
        self.0.0.was_versioned.fetch_or(on, Ordering::SeqCst);
        Ok(())
    }
}
