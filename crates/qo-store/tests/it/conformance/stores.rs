//! The stores that are asked.

use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::memory::InMemory;
use qo_testkit::SeaweedFs;

use super::*;

/// On a versioned bucket, SeaweedFS makes the writers of one contended key wait for its lock in steps of a second.
const VERSIONED_FAN_OUT: usize = 4;
const VERSIONED_ROUNDS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    run(StoreUnderTest::new("memory", Arc::new(InMemory::new()))).await;
}

fn seaweedfs_bucket(bucket: &str) -> Arc<dyn ObjectStore> {
    let server = SeaweedFs::shared().unwrap();
    let store = AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name(bucket)
        .with_access_key_id(server.access_key())
        .with_secret_access_key(server.secret_key())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        })
        .build()
        .unwrap();
    Arc::new(store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs() {
    let bucket = SeaweedFs::shared().unwrap().unique_bucket("plain").unwrap();
    run(StoreUnderTest::new("SeaweedFS", seaweedfs_bucket(&bucket))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_with_versions() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_versioned_bucket("versioned").unwrap();
    let store = StoreUnderTest::new("SeaweedFS with versions", seaweedfs_bucket(&bucket));
    run(StoreUnderTest {
        versioned: true,
        fan_out: VERSIONED_FAN_OUT,
        rounds: VERSIONED_ROUNDS,
        ..store
    })
    .await;
}
