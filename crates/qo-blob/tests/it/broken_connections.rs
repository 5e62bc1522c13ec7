//! Uploads and reads over connections that break.

use std::sync::Arc;

use bytes::Bytes;
use qo_blob::{BlobStore, BlobStoreExt, Blobs};
use qo_fixtures::Bucket;
use qo_store::wrap::{FaultKind, FaultPlan, FaultStore};

use crate::stores::{bytes, chunks, read};

/// Every operation succeeds in spite of lost responses, failed writes and torn reads, and each upload is one blob.
#[tokio::test(start_paused = true)]
async fn operations_survive_a_failing_store() {
    let bucket = Bucket::new();
    for seed in 0..30 {
        let kinds = [
            FaultKind::LostRequest,
            FaultKind::LostResponse,
            FaultKind::ErrorAfterApply,
            FaultKind::TornRead,
        ];
        let plan = FaultPlan::none().with_each(kinds, 0.08);
        let faulty = FaultStore::new(bucket.objects(), bucket.runtime.clone(), plan, seed);
        let client = bucket.client_on(Arc::new(faulty));
        let blobs = Blobs::new(client, bucket.runtime.clone(), 1 << 30);
        let blobs: Arc<dyn BlobStore> = Arc::new(blobs);
        let content = bytes(300_000, seed);
        let put = blobs.put(chunks(&content, 10_000), None).await.unwrap();
        assert!(put.created, "seed {seed}");
        assert!(read(&blobs, put.address).await.unwrap() == content);
        assert!(!blobs.put_bytes(Bytes::from(content)).await.unwrap().created);
        blobs.touch(put.address).await.unwrap();
        assert!(blobs.delete(put.address).await.unwrap());
        assert!(blobs.head(put.address).await.is_err());
    }
}
