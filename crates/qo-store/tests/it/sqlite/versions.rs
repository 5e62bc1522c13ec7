//! Versions, settings and lifecycle rules.

use futures_util::future::join_all;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_core::Timestamp;
use qo_store::admin::{BucketAdmin, CorsRule, LifecycleRule, ObjectVersion, Versioning};
use qo_store::{SqliteStore, StoreError};

use super::{ClockRuntime, Fixture, get, is_missing, put};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

async fn versions(store: &SqliteStore, key: &str) -> Vec<ObjectVersion> {
    let list = store.list_versions(key, 100).await.unwrap();
    assert!(!list.truncated);
    assert_eq!(
        list.versions.iter().filter(|v| v.is_latest).count(),
        usize::from(!list.versions.is_empty())
    );
    assert!(list.versions.first().is_none_or(|first| first.is_latest));
    list.versions
}

/// The bytes of each version, newest first; `-` for a delete marker.
async fn history(store: &SqliteStore, key: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    for version in versions(store, key).await {
        bodies.push(if version.is_delete_marker {
            let refused = store.get_version(key, &version.version).await;
            assert!(matches!(refused, Err(StoreError::NotFound { .. })));
            "-".to_owned()
        } else {
            let body = store.get_version(key, &version.version).await.unwrap();
            assert_eq!(version.size, body.len() as u64);
            String::from_utf8(body.to_vec()).unwrap()
        });
    }
    bodies
}

async fn versioned() -> Fixture {
    let fixture = Fixture::new();
    let store = &fixture.store;
    store.set_versioning(Versioning::On).await.unwrap();
    fixture
}

#[tokio::test]
async fn off_keeps_nothing() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    assert_eq!(store.versioning().await.unwrap(), Versioning::Off);
    put(store, "k", "1").await;
    put(store, "k", "2").await;
    assert_eq!(history(store, "k").await, ["2"]);
    store.delete(&Path::from("k")).await.unwrap();
    assert!(history(store, "k").await.is_empty());
}

#[tokio::test]
async fn every_overwrite_and_delete_is_kept_when_on() {
    let fixture = versioned().await;
    let store = &fixture.store;
    put(store, "k", "1").await;
    let second = put(store, "k", "2").await;
    store.delete(&Path::from("k")).await.unwrap();
    // Neither a second delete nor a delete of an unknown key leaves a marker.
    store.delete(&Path::from("k")).await.unwrap();
    store.delete(&Path::from("unknown")).await.unwrap();
    assert!(history(store, "unknown").await.is_empty());
    assert_eq!(history(store, "k").await, ["-", "2", "1"]);
    assert!(is_missing(store, "k").await);
    put(store, "k", "3").await;
    assert_eq!(history(store, "k").await, ["3", "-", "2", "1"]);
    let options = object_store::GetOptions::new().with_version(second.version);
    let found = store.get_opts(&Path::from("k"), options).await.unwrap();
    assert_eq!(found.bytes().await.unwrap(), "2");
    // An invalid version is not found, and deleting it succeeds.
    for strange in ["", "null", "007", "999", "x"] {
        let refused = store.get_version("k", strange).await;
        assert!(matches!(refused, Err(StoreError::NotFound { .. })));
        store.delete_version("k", strange).await.unwrap();
    }
    let newest = store.list_versions("k", 2).await.unwrap();
    assert!(newest.truncated);
    assert_eq!(newest.versions.len(), 2);
}

#[tokio::test]
async fn deleting_the_latest_version_restores_the_previous_one() {
    let fixture = versioned().await;
    let store = &fixture.store;
    let key = Path::from("k");
    let first = put(store, "k", "1").await;
    store.delete(&key).await.unwrap();
    put(store, "k", "2").await;
    put(store, "k", "3").await;
    store.delete(&key).await.unwrap();
    for expected in [
        vec!["-", "3", "2", "-", "1"],
        vec!["3", "2", "-", "1"],
        vec!["2", "-", "1"],
        vec!["-", "1"],
        vec!["1"],
        vec![],
    ] {
        assert_eq!(history(store, "k").await, expected);
        match expected.first() {
            None | Some(&"-") => assert!(is_missing(store, "k").await),
            Some(body) => assert_eq!(get(store, "k").await, *body),
        }
        if expected == ["1"] {
            let meta = store.head(&key).await.unwrap();
            assert_eq!(meta.e_tag, first.e_tag);
        }
        if let Some(latest) = versions(store, "k").await.first() {
            store.delete_version("k", &latest.version).await.unwrap();
        }
    }
    // Removing a version in the middle does not affect the latest.
    put(store, "k", "4").await;
    let middle = put(store, "k", "5").await;
    put(store, "k", "6").await;
    store
        .delete_version("k", &middle.version.unwrap())
        .await
        .unwrap();
    assert_eq!(history(store, "k").await, ["6", "4"]);
}

#[tokio::test]
async fn off_after_on_is_suspended_and_keeps_one_unversioned_version() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    put(store, "k", "before").await;
    store.set_versioning(Versioning::On).await.unwrap();
    put(store, "k", "1").await;
    put(store, "k", "2").await;
    assert_eq!(history(store, "k").await, ["2", "1", "before"]);
    store.set_versioning(Versioning::Off).await.unwrap();
    assert_eq!(store.versioning().await.unwrap(), Versioning::Suspended);
    // The first unversioned write replaces the earlier unversioned version.
    put(store, "k", "x").await;
    assert_eq!(history(store, "k").await, ["x", "2", "1"]);
    put(store, "k", "y").await;
    assert_eq!(history(store, "k").await, ["y", "2", "1"]);
    store.delete(&Path::from("k")).await.unwrap();
    assert_eq!(history(store, "k").await, ["-", "2", "1"]);
    put(store, "k", "z").await;
    assert_eq!(history(store, "k").await, ["z", "2", "1"]);
    store.set_versioning(Versioning::On).await.unwrap();
    put(store, "k", "3").await;
    assert_eq!(history(store, "k").await, ["3", "z", "2", "1"]);
}

#[tokio::test]
async fn no_bytes_remain() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    for versioning in [Versioning::Off, Versioning::On, Versioning::Suspended] {
        store.set_versioning(versioning).await.unwrap();
        for body in ["1", "2", "3"] {
            put(store, "k", body).await;
            store
                .copy(&Path::from("k"), &Path::from("copy"))
                .await
                .unwrap();
        }
        store.delete(&Path::from("k")).await.unwrap();
        store.delete(&Path::from("copy")).await.unwrap();
    }
    for key in ["k", "copy"] {
        for version in versions(store, key).await {
            store.delete_version(key, &version.version).await.unwrap();
        }
    }
    let connection = rusqlite::Connection::open(store.path()).unwrap();
    for table in ["objects", "versions", "bodies"] {
        let left: i64 = connection
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
}

#[tokio::test]
async fn rules_are_returned_as_they_were_set() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    assert!(store.cors().await.unwrap().is_empty());
    assert!(store.lifecycle().await.unwrap().is_empty());
    let cors = vec![CorsRule {
        allowed_origins: vec!["https://qo.example.org".to_owned()],
        allowed_methods: vec!["GET".to_owned(), "PUT".to_owned()],
        allowed_headers: vec!["*".to_owned()],
        expose_headers: vec!["ETag".to_owned()],
        max_age_seconds: 3_600,
    }];
    let lifecycle = vec![rule("qo-index", "ready/")];
    store.set_cors(&cors).await.unwrap();
    store.set_lifecycle(&lifecycle).await.unwrap();
    let other = fixture.second();
    assert_eq!(other.cors().await.unwrap(), cors);
    assert_eq!(other.lifecycle().await.unwrap(), lifecycle);
    store.set_cors(&[]).await.unwrap();
    store.set_lifecycle(&[]).await.unwrap();
    assert!(other.cors().await.unwrap().is_empty());
    assert!(other.lifecycle().await.unwrap().is_empty());
    let too_many = vec![cors[0].clone(); 101];
    assert!(matches!(
        store.set_cors(&too_many).await,
        Err(StoreError::Unsupported { .. })
    ));
}

fn rule(id: &str, prefix: &str) -> LifecycleRule {
    LifecycleRule {
        id: id.to_owned(),
        prefix: prefix.to_owned(),
        expire_days: None,
        expire_noncurrent_days: None,
        expire_delete_markers: false,
        abort_multipart_days: Some(1),
    }
}

#[tokio::test]
async fn only_old_objects_versions_and_markers_are_removed() {
    let clock = ClockRuntime::at(0);
    let fixture = Fixture::in_runtime(clock.clone());
    let store = &fixture.store;
    store.set_versioning(Versioning::On).await.unwrap();
    let workers = LifecycleRule {
        expire_days: Some(1),
        expire_noncurrent_days: Some(7),
        expire_delete_markers: true,
        ..rule("qo-workers", "workers/")
    };
    store.set_lifecycle(&[workers]).await.unwrap();
    put(store, "workers/old", "1").await;
    put(store, "tasks/old", "1").await;
    put(store, "workersx", "1").await;
    clock.set(DAY_MS / 2);
    put(store, "workers/new", "1").await;

    let at = |days: i64| Timestamp::from_millis(days * DAY_MS);
    clock.set(DAY_MS);
    let report = store.apply_lifecycle(at(1)).await.unwrap();
    assert_eq!((report.expired_objects, report.is_complete), (1, true));
    assert_eq!(history(store, "workers/old").await, ["-", "1"]);
    assert_eq!(get(store, "workers/new").await, "1");

    // Seven days after it was replaced the version is removed, and with it the marker that hid it.
    clock.set(8 * DAY_MS);
    put(store, "workers/new", "2").await;
    let report = store.apply_lifecycle(at(8)).await.unwrap();
    assert_eq!((report.expired_objects, report.expired_versions), (0, 1));
    assert_eq!(report.expired_delete_markers, 1);
    assert!(history(store, "workers/old").await.is_empty());
    assert_eq!(history(store, "workers/new").await, ["2", "1"]);
    assert_eq!(get(store, "tasks/old").await, "1");
    assert_eq!(get(store, "workersx").await, "1");
    let again = store.apply_lifecycle(at(8)).await.unwrap();
    assert_eq!((again.expired_versions, again.is_complete), (0, true));
}

#[tokio::test]
async fn one_call_removes_a_bounded_number() {
    let fixture = Fixture::in_runtime(ClockRuntime::at(0));
    let store = &fixture.store;
    let expire = LifecycleRule {
        expire_days: Some(1),
        ..rule("all", "")
    };
    store.set_lifecycle(&[expire]).await.unwrap();
    let keys: Vec<Path> = (0..12_000).map(|n| Path::from(format!("{n:05}"))).collect();
    join_all(keys.iter().map(|key| store.put(key, "x".into()))).await;
    let now = Timestamp::from_millis(DAY_MS);
    let first = store.apply_lifecycle(now).await.unwrap();
    assert_eq!((first.expired_objects, first.is_complete), (10_000, false));
    let second = store.apply_lifecycle(now).await.unwrap();
    assert_eq!((second.expired_objects, second.is_complete), (2_000, true));
}

#[tokio::test]
async fn a_process_that_keeps_the_file_open_applies_the_rules_while_it_writes() {
    let clock = ClockRuntime::at(10 * DAY_MS);
    let fixture = Fixture::in_runtime(clock.clone());
    let store = &fixture.store;
    store.set_versioning(Versioning::On).await.unwrap();
    let meta = LifecycleRule {
        expire_noncurrent_days: Some(1),
        ..rule("qo-meta", "meta/")
    };
    store.set_lifecycle(&[meta]).await.unwrap();
    for number in 0..50 {
        put(store, "meta/signal", &number.to_string()).await;
    }
    // The file has just been opened, and then the versions are not old enough.
    for ms in [0, 3_600_000] {
        clock.pass(ms);
        put(store, "meta/signal", "more").await;
        settled(store, "meta/signal").await;
    }
    assert_eq!(versions(store, "meta/signal").await.len(), 52);
    clock.pass(2 * 24 * 60 * 60 * 1_000);
    put(store, "meta/signal", "last").await;
    settled(store, "meta/signal").await;
    assert_eq!(history(store, "meta/signal").await, ["last", "more"]);
}

/// Waits until the number of versions no longer changes.
async fn settled(store: &SqliteStore, key: &str) {
    let mut last = 0;
    let mut unchanged = 0;
    while unchanged < 20 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let now = versions(store, key).await.len();
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
    }
}

#[tokio::test]
async fn versions_are_found_by_prefix() {
    let fixture = versioned().await;
    let store = &fixture.store;
    for key in ["data/1/a", "data/1/b", "data/10/a", "data/1"] {
        put(store, key, "1").await;
    }
    put(store, "data/1/a", "2").await;
    store.delete(&Path::from("data/1/b")).await.unwrap();
    let list = store.list_versions_below("data/1/", 100).await.unwrap();
    let found: Vec<_> = (list.versions.iter())
        .map(|found| {
            let version = &found.version;
            (
                found.key.as_str(),
                version.is_latest,
                version.is_delete_marker,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("data/1/a", true, false),
            ("data/1/a", false, false),
            ("data/1/b", true, true),
            ("data/1/b", false, false),
        ]
    );
    assert!(!list.truncated);
    let some = store.list_versions_below("data/1/", 3).await.unwrap();
    assert_eq!((some.versions.len(), some.truncated), (3, true));
}
