//! Bucket features beyond objects: versions, versioning, CORS and lifecycle rules, and a clock.

use qo_store::StoreError;
use qo_store::admin::{CorsRule, LifecycleRule};

use super::*;

/// The store's admin interface, or the end of the check.
macro_rules! admin_of {
    ($store:expr) => {
        match &$store.admin {
            Some(admin) => admin,
            None => return CheckResult::Unsupported("there is no bucket to administer".to_owned()),
        }
    };
}

/// The value, or the end of the check if the store does not support the operation.
macro_rules! if_supported {
    ($result:expr) => {
        match $result {
            Err(StoreError::Unsupported { detail, .. }) => return CheckResult::Unsupported(detail),
            other => other.unwrap(),
        }
    };
}

pub(super) async fn reports_its_versioning(store: &StoreUnderTest) -> CheckResult {
    let admin = admin_of!(store);
    let expected = if store.versioned {
        Versioning::On
    } else {
        Versioning::Off
    };
    assert_eq!(if_supported!(admin.versioning().await), expected);
    CheckResult::Passed
}

pub(super) async fn keeps_versions(store: &StoreUnderTest) -> CheckResult {
    let admin = admin_of!(store);
    let key = store.key("versioned");
    let unknown = if_supported!(admin.list_versions(&key, 10).await);
    assert!(unknown.versions.is_empty() && !unknown.truncated);
    for body in ["one", "two", "three"] {
        store.client.put(&key, body.into()).await.unwrap();
    }
    // A sibling key with the same start is not a version of this object.
    store
        .client
        .put(&format!("{key}-neighbour"), "x".into())
        .await
        .unwrap();
    let list = admin.list_versions(&key, 10).await.unwrap();
    if !store.versioned {
        assert!(list.versions.len() <= 1, "{list:?}");
        return CheckResult::Noted("the bucket keeps none".to_owned());
    }
    assert_eq!(list.versions.len(), 3, "{list:?}");
    assert!(!list.truncated);
    let latest: Vec<_> = list.versions.iter().map(|v| v.is_latest).collect();
    assert_eq!(latest, [true, false, false]);
    for (version, body) in list.versions.iter().zip(["three", "two", "one"]) {
        assert!(!version.is_delete_marker);
        assert_eq!(version.size, body.len() as u64);
        let stored = admin.get_version(&key, &version.version).await.unwrap();
        assert_eq!(stored, body);
    }
    let newest = admin.list_versions(&key, 2).await.unwrap();
    assert_eq!(newest.versions.len(), 2);
    assert!(newest.truncated);
    assert_eq!(newest.versions[..], list.versions[..2]);

    // A delete hides the object behind a marker, and its versions remain.
    store
        .client
        .delete_many(std::slice::from_ref(&key))
        .await
        .unwrap();
    let read = store.client.get(&key).await;
    assert!(matches!(read, Err(StoreError::NotFound { .. })), "{read:?}");
    let hidden = admin.list_versions(&key, 10).await.unwrap();
    assert_eq!(hidden.versions.len(), 4, "{hidden:?}");
    assert!(hidden.versions[0].is_delete_marker && hidden.versions[0].is_latest);

    // Removing the marker restores the object; removing versions removes only those.
    let marker = &hidden.versions[0].version;
    admin.delete_version(&key, marker).await.unwrap();
    admin.delete_version(&key, marker).await.unwrap();
    assert_eq!(store.client.get(&key).await.unwrap().body, "three");
    let middle = &list.versions[1].version;
    admin.delete_version(&key, middle).await.unwrap();
    let gone = admin.get_version(&key, middle).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
    let left = admin.list_versions(&key, 10).await.unwrap();
    let left: Vec<_> = left.versions.iter().map(|v| &v.version).collect();
    assert_eq!(left, [&list.versions[0].version, &list.versions[2].version]);
    CheckResult::Passed
}

pub(super) async fn keeps_cors_rules(store: &StoreUnderTest) -> CheckResult {
    let admin = admin_of!(store);
    if_supported!(admin.set_cors(&[]).await);
    assert_eq!(if_supported!(admin.cors().await), []);
    let rules = [
        CorsRule {
            allowed_origins: vec!["https://qo.example.org".to_owned()],
            allowed_methods: ["GET", "PUT", "DELETE", "HEAD"].map(str::to_owned).to_vec(),
            allowed_headers: vec!["*".to_owned()],
            expose_headers: ["ETag", "x-amz-version-id", "Date"]
                .map(str::to_owned)
                .to_vec(),
            max_age_seconds: 3_600,
        },
        CorsRule {
            allowed_origins: vec!["*".to_owned()],
            allowed_methods: vec!["GET".to_owned()],
            allowed_headers: vec![],
            expose_headers: vec![],
            max_age_seconds: 60,
        },
    ];
    if_supported!(admin.set_cors(&rules).await);
    assert_eq!(admin.cors().await.unwrap(), rules);
    admin.set_cors(&rules[..1]).await.unwrap();
    assert_eq!(admin.cors().await.unwrap(), rules[..1]);
    admin.set_cors(&[]).await.unwrap();
    assert_eq!(admin.cors().await.unwrap(), []);
    CheckResult::Passed
}

pub(super) async fn keeps_lifecycle_rules(store: &StoreUnderTest) -> CheckResult {
    let admin = admin_of!(store);
    if_supported!(admin.set_lifecycle(&[]).await);
    assert_eq!(if_supported!(admin.lifecycle().await), []);
    let plain = LifecycleRule {
        id: "qo-workers".to_owned(),
        prefix: "workers/".to_owned(),
        expire_days: Some(7),
        expire_noncurrent_days: None,
        expire_delete_markers: false,
        abort_multipart_days: None,
    };
    if_supported!(admin.set_lifecycle(std::slice::from_ref(&plain)).await);
    assert_eq!(admin.lifecycle().await.unwrap(), [plain]);

    // Each of these separately, so that a store which lacks one reports it.
    let mut unsupported = Vec::new();
    let empty = LifecycleRule {
        id: "qo-ready".to_owned(),
        prefix: "ready/".to_owned(),
        expire_days: None,
        expire_noncurrent_days: None,
        expire_delete_markers: false,
        abort_multipart_days: None,
    };
    for (feature, rule) in [
        (
            "noncurrent versions",
            LifecycleRule {
                expire_noncurrent_days: Some(1),
                ..empty.clone()
            },
        ),
        (
            "delete markers",
            LifecycleRule {
                expire_delete_markers: true,
                ..empty.clone()
            },
        ),
        (
            "unfinished uploads",
            LifecycleRule {
                abort_multipart_days: Some(1),
                ..empty
            },
        ),
    ] {
        let kept = match admin.set_lifecycle(std::slice::from_ref(&rule)).await {
            Ok(()) => admin.lifecycle().await.map(|rules| rules == [rule]),
            Err(error) => Err(error),
        };
        match kept {
            Ok(true) => {}
            Ok(false) => unsupported.push(format!("{feature} (accepted, not kept)")),
            Err(error) => unsupported.push(format!("{feature} ({error})")),
        }
    }
    if_supported!(admin.set_lifecycle(&[]).await);
    assert_eq!(admin.lifecycle().await.unwrap(), []);
    if unsupported.is_empty() {
        CheckResult::Passed
    } else {
        CheckResult::Unsupported(format!("rules for {}", unsupported.join(", ")))
    }
}

pub(super) async fn shows_its_clock(store: &StoreUnderTest) -> CheckResult {
    let Some(clock) = &store.clock else {
        return CheckResult::Unsupported("the store has no clock of its own".to_owned());
    };
    store
        .client
        .put(&store.key("clocked"), "x".into())
        .await
        .unwrap();
    // The test servers run on this machine, so both clocks are the same.
    let uncertainty_ms = clock.uncertainty_ms().unwrap();
    let offset_ms = clock.offset_ms();
    let allowed_ms = i64::try_from(uncertainty_ms).unwrap() + 1_000;
    assert!(offset_ms.abs() <= allowed_ms, "{clock:?}");
    CheckResult::Noted(format!("{offset_ms} ms ± {uncertainty_ms} ms"))
}
