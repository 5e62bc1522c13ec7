//! The doctor.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qo_core::Json;
use qo_direct::{DoctorOptions, DoctorReport, Health, IndexMode, doctor};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, When, WorkerInfo};
use qo_store::StoreClient;
use qo_store::runtime::RuntimeExt;
use qo_store::wrap::{Delay, LatencyStore};
use qo_testkit::SeaweedFs;

use super::stores::{self, OpenStore};

fn options() -> DoctorOptions {
    let mut options = DoctorOptions::default();
    stores::quick_probe(&mut options.probe);
    options
}

async fn run(opened: &OpenStore, options: &DoctorOptions) -> DoctorReport {
    doctor(
        &opened.store,
        &opened.client,
        opened.runtime.as_ref(),
        options,
    )
    .await
}

fn health(report: &DoctorReport, name: &str) -> Health {
    let check = report.check(name);
    check
        .unwrap_or_else(|| panic!("no check {name}: {report}"))
        .health
}

fn figure(report: &DoctorReport, check: &str, name: &str) -> i64 {
    report.check(check).unwrap().figures[name]
}

async fn everything_in_the_bucket(client: &StoreClient) -> Vec<String> {
    let page = client.page("", None, 1_000).await.unwrap();
    page.entries.into_iter().map(|entry| entry.key).collect()
}

/// Examines a queue with one task of each status and one worker, and checks that nothing was changed.
async fn a_queue_in_use_is_found_healthy(opened: OpenStore) {
    let engine = opened.engine_in(IndexMode::IndexOnly);
    let work = || SubmitRequest::new("work".parse().unwrap(), Json::null());
    let worker: qo_core::WorkerId = "w-1".parse().unwrap();
    engine
        .heartbeat(&WorkerInfo::new(worker.clone(), engine.now()))
        .await
        .unwrap();
    engine.submit(work()).await.unwrap();
    let mut request = ClaimRequest::new(worker, vec!["work".parse().unwrap()]);
    request.wait_ms = 20_000;
    assert_eq!(engine.claim(&request).await.unwrap().len(), 1);
    engine.submit(work()).await.unwrap();
    let mut later = work();
    later.available = When::InMillis(3_600_000);
    engine.submit(later).await.unwrap();
    engine.close().await;
    // The entry of the claimed task is deleted, and the claim is announced, in the background.
    qo_fixtures::until("the background work is done", async || {
        let keys = everything_in_the_bucket(&opened.client).await;
        let ready = keys.iter().filter(|key| key.starts_with("ready/")).count();
        (ready == 1 && keys.iter().any(|key| key == "meta/claims.json")).then_some(())
    })
    .await;
    let mut before = everything_in_the_bucket(&opened.client).await;

    let report = run(&opened, &options()).await;
    for name in [
        "reachable",
        "permissions",
        "latency",
        "clock",
        "versioning",
        "index",
        "records",
        "swaps",
        "probe",
    ] {
        assert_eq!(health(&report, name), Health::Ok, "{name}: {report}");
    }
    assert_eq!(figure(&report, "index", "ready"), 1, "{report}");
    assert_eq!(figure(&report, "index", "later"), 1, "{report}");
    assert_eq!(figure(&report, "index", "leases"), 1, "{report}");
    assert_eq!(figure(&report, "index", "quarantine"), 0, "{report}");
    assert_eq!(figure(&report, "index", "workers_alive"), 1, "{report}");
    assert_eq!(figure(&report, "index", "workers_stale"), 0, "{report}");
    assert!(figure(&report, "index", "oldest_ready_age_ms") >= 0);
    for name in ["put_median_us", "get_median_us", "list_median_us"] {
        assert!(figure(&report, "latency", name) > 0, "{report}");
    }
    assert!(figure(&report, "probe", "swap_rounds") > 0, "{report}");

    before.push("meta/probe.json".to_owned());
    before.sort();
    let after = everything_in_the_bucket(&opened.client).await;
    assert_eq!(after, before);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["checks"][0]["name"], "reachable");
    assert_eq!(json["checks"][0]["health"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_found_healthy() {
    a_queue_in_use_is_found_healthy(stores::memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_is_found_healthy() {
    a_queue_in_use_is_found_healthy(stores::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_is_found_healthy() {
    a_queue_in_use_is_found_healthy(stores::seaweedfs()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_with_versions_is_found_healthy() {
    a_queue_in_use_is_found_healthy(stores::seaweedfs_versioned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_without_lifecycle_rules_are_a_warning_until_init_sets_them() {
    let opened = stores::seaweedfs_versioned();
    let report = run(&opened, &options()).await;
    assert_eq!(health(&report, "lifecycle"), Health::Warning, "{report}");
    assert_eq!(report.health(), Health::Warning);
    assert!(report.to_string().contains("qo init"), "{report}");

    let mut init = qo_direct::InitOptions::default();
    init.probe = options().probe;
    let prepared = qo_direct::init(&opened.store, opened.runtime.as_ref(), &init).await;
    assert!(prepared.is_ready(), "{prepared}");
    let report = run(&opened, &options()).await;
    assert_eq!(report.health(), Health::Ok, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn neglected_work_is_a_warning() {
    let opened = stores::memory();
    let now = opened.client.now();
    let (id, long_ago) = (
        "550e8400-e29b-41d4-a716-446655440000",
        now.minus_millis(3_600_000),
    );
    for key in [
        format!("ready/default/work/5/{:015}/{id}", long_ago.as_millis()),
        format!("later/{:015}/{id}/default/work/5", long_ago.as_millis()),
        format!("leases/5/{:010}/{id}/1", long_ago.minute()),
        format!("quarantine/tasks/5/{id}.json"),
    ] {
        opened.client.put(&key, Bytes::new()).await.unwrap();
    }
    let report = run(&opened, &options()).await;
    assert_eq!(health(&report, "index"), Health::Warning, "{report}");
    assert_eq!(figure(&report, "index", "leases_overdue"), 1);
    assert_eq!(figure(&report, "index", "later_overdue"), 1);
    assert!(figure(&report, "index", "oldest_ready_age_ms") >= 3_600_000);
    let hint = report.check("index").unwrap().hint.as_deref().unwrap();
    for word in ["start one", "monitor", "quarantine/"] {
        assert!(hint.contains(word), "{hint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_later_versions_and_damaged_ones_are_counted() {
    let opened = stores::memory();
    let engine = opened.engine_in(IndexMode::IndexOnly);
    let work = || SubmitRequest::new("work".parse().unwrap(), Json::null());
    let mut keys = Vec::new();
    for _ in 0..4 {
        let id = engine.submit(work()).await.unwrap().task.id;
        keys.push(qo_core::keys::Key::Task(id).to_string());
    }
    engine.close().await;
    let rewrite = async |key: &str, from: &str, to: &str| {
        let body = opened.client.get(key).await.unwrap().body;
        let text = String::from_utf8(body.to_vec()).unwrap();
        let text = text.replacen(from, to, 1);
        opened.client.put(key, text.into()).await.unwrap();
    };
    rewrite(&keys[0], "\"pending\"", "\"hibernating\"").await;
    rewrite(&keys[1], "{", "{\"min_reader\":99,").await;
    let report = run(&opened, &options()).await;
    assert_eq!(health(&report, "records"), Health::Warning, "{report}");
    assert_eq!(figure(&report, "records", "read"), 4);
    assert_eq!(figure(&report, "records", "newer"), 2);
    assert_eq!(figure(&report, "records", "damaged"), 0);
    assert!(report.to_string().contains("newer version"), "{report}");

    // A queue in one JSON object is looked at, too.
    let lines = "{\"format\":1,\"tasks\":[{\"id\":7},{\"status\":\"hibernating\"}]}";
    let (key, body) = ("queue.json", Bytes::from(lines));
    opened.client.put(key, body).await.unwrap();
    let report = run(&opened, &options()).await;
    assert_eq!(figure(&report, "records", "newer"), 3);
    assert_eq!(figure(&report, "records", "damaged"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_is_a_warning() {
    let opened = stores::memory();
    let now = opened.runtime.moment();
    let date = now.wall.plus_millis(90_000);
    opened.store.clock.observe(now, now, date);
    let report = run(&opened, &options()).await;
    assert_eq!(health(&report, "clock"), Health::Warning, "{report}");
    assert!(figure(&report, "clock", "offset_ms") >= 89_000, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_beyond_the_page_limit_are_reported_as_more() {
    let opened = stores::memory();
    let engine = opened.engine_in(IndexMode::IndexOnly);
    let work = SubmitRequest::new("work".parse().unwrap(), Json::null());
    for submitted in engine.submit_many(vec![work; 1_001]).await {
        submitted.unwrap();
    }
    let mut one_page = options();
    one_page.index_pages_max = 1;
    let report = run(&opened, &one_page).await;
    assert_eq!(figure(&report, "index", "ready"), 1_000);
    assert_eq!(figure(&report, "index", "ready_has_more"), 1);
    let said = &report.check("index").unwrap().summary;
    assert!(said.contains("more than 1000 ready"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_store_fails_and_the_other_checks_are_skipped() {
    let opened = stores::bucket("qo-there-is-no-such-bucket");
    let report = run(&opened, &options()).await;
    assert_eq!(report.health(), Health::Failed);
    assert_eq!(health(&report, "reachable"), Health::Failed, "{report}");
    assert_eq!(health(&report, "probe"), Health::Skipped, "{report}");
    assert_eq!(report.checks.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_named_and_every_check_still_runs() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("ops").unwrap();
    let opened = stores::bucket_with_secret(&bucket, "not-the-secret");
    let report = run(&opened, &options()).await;
    assert_eq!(report.health(), Health::Failed);
    for name in ["reachable", "permissions", "latency", "index", "probe"] {
        assert_eq!(health(&report, name), Health::Failed, "{name}: {report}");
    }
    for name in ["versioning", "lifecycle"] {
        assert_eq!(health(&report, name), Health::Warning, "{name}: {report}");
    }
    let said = &report.check("permissions").unwrap().summary;
    for action in [
        "s3:PutObject",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:DeleteObject",
    ] {
        assert!(said.contains(action), "{said}");
    }
    assert!(!report.to_string().contains("not-the-secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_does_not_delay_the_doctor() {
    let mut store = stores::memory().store;
    let runtime = qo_store::runtime::TokioRuntime::shared();
    let slow = Delay::Fixed(Duration::from_secs(20));
    store.objects = Arc::new(LatencyStore::new(
        store.objects,
        Arc::clone(&runtime),
        slow,
        0,
    ));
    let opened = OpenStore::new(store);
    let mut hurried = options();
    hurried.time_max = Duration::from_millis(300);
    let started = runtime.monotonic();
    let report = run(&opened, &hurried).await;
    assert!(runtime.monotonic() < started + Duration::from_secs(15));
    assert_eq!(report.checks.len(), 10);
    assert_eq!(report.health(), Health::Warning, "{report}");
}
