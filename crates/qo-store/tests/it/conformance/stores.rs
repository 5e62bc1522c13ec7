//! The tested stores.

use qo_testkit::{Azurite, SeaweedFs};

use super::*;
use crate::real_stores;

/// On a versioned bucket, SeaweedFS makes the writers of a contended key wait for its lock in steps of a second.
const VERSIONED_FAN_OUT: usize = 4;
const VERSIONED_ROUNDS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    run(StoreUnderTest::new("memory", real_stores::memory())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    run(StoreUnderTest::new("SQLite", real_stores::sqlite(&folder))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_with_versions() {
    let folder = tempfile::tempdir().unwrap();
    let store = real_stores::sqlite(&folder);
    let admin = store.admin.clone().unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    run(StoreUnderTest {
        versioned: true,
        ..StoreUnderTest::new("SQLite with versions", store)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("plain").unwrap();
    run(StoreUnderTest::new(
        "SeaweedFS",
        real_stores::seaweedfs(&bucket),
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_with_versions() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_versioned_bucket("versioned").unwrap();
    run(StoreUnderTest {
        versioned: true,
        fan_out: VERSIONED_FAN_OUT,
        rounds: VERSIONED_ROUNDS,
        ..StoreUnderTest::new("SeaweedFS with versions", real_stores::seaweedfs(&bucket))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn azurite() {
    let server = Azurite::start().unwrap();
    server.create_container("tests").unwrap();
    run(StoreUnderTest {
        suffix_ranges: false,
        ..StoreUnderTest::new("Azurite", real_stores::azurite(&server, "tests"))
    })
    .await;
}
