//! The stores that are asked.

use qo_store::{OpenOptions, Store, open};
use qo_testkit::SeaweedFs;

use super::*;

/// On a versioned bucket, SeaweedFS makes the writers of one contended key wait for its lock in steps of a second.
const VERSIONED_FAN_OUT: usize = 4;
const VERSIONED_ROUNDS: usize = 3;

fn options() -> OpenOptions {
    OpenOptions::new(TokioWorld::shared())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    let store = open("memory:", &options()).unwrap();
    run(StoreUnderTest::new("memory", store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    run(StoreUnderTest::new(
        "SQLite",
        open(&url, &options()).unwrap(),
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_with_versions() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    let store = open(&url, &options()).unwrap();
    let admin = store.admin.clone().unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    run(StoreUnderTest {
        versioned: true,
        ..StoreUnderTest::new("SQLite with versions", store)
    })
    .await;
}

/// A bucket, below a prefix: what is asked of it must not leak out of there.
fn seaweedfs_bucket(bucket: &str) -> Store {
    let server = SeaweedFs::shared().unwrap();
    let options = options()
        .with_var("S3_ENDPOINT", server.endpoint())
        .with_var("S3_REGION", "us-east-1")
        .with_var("AWS_ACCESS_KEY_ID", server.access_key())
        .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key());
    open(&format!("s3://{bucket}/a/prefix"), &options).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("plain").unwrap();
    run(StoreUnderTest::new("SeaweedFS", seaweedfs_bucket(&bucket))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_with_versions() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_versioned_bucket("versioned").unwrap();
    run(StoreUnderTest {
        versioned: true,
        fan_out: VERSIONED_FAN_OUT,
        rounds: VERSIONED_ROUNDS,
        ..StoreUnderTest::new("SeaweedFS with versions", seaweedfs_bucket(&bucket))
    })
    .await;
}
