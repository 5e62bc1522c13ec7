//! Blobs on every kind of store.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use qo_blob::{BlobError, BlobStore, BlobStream, Blobs};
use qo_core::BlobAddress;
use qo_fixtures::{TestStore, client_of};
use qo_store::runtime::TokioRuntime;
use qo_store::{Store, StoreClient};

/// An open store.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) client: StoreClient,
    _address: TestStore,
}

impl Opened {
    pub(crate) fn new(address: TestStore) -> Self {
        let store = address.open();
        Self {
            client: client_of(&store),
            store,
            _address: address,
        }
    }

    pub(crate) fn blobs(&self) -> Blobs {
        let limit = Blobs::limit_of(self.store.kind);
        Blobs::new(self.client.clone(), TokioRuntime::shared(), limit)
    }

    /// Overwrites an object behind the back of the blobs.
    pub(crate) async fn overwrite(&self, key: &str, bytes: &'static [u8]) {
        let client = self.client.clone();
        client.put(key, Bytes::from_static(bytes)).await.unwrap();
    }
}

/// Every kind of store on which blobs are tested.
pub(crate) fn all() -> Vec<Opened> {
    let stores = [
        TestStore::memory(),
        TestStore::sqlite(),
        TestStore::seaweedfs("blobs"),
    ];
    stores.into_iter().map(Opened::new).collect()
}

/// Bytes in chunks.
pub(crate) fn chunks(bytes: &[u8], size: usize) -> BlobStream {
    let chunks: Vec<_> = bytes
        .chunks(size.max(1))
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    futures_util::stream::iter(chunks).boxed()
}

/// Bytes that do not repeat within a part.
pub(crate) fn bytes(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// Reads a whole blob.
pub(crate) async fn read(
    blobs: &Arc<dyn BlobStore>,
    address: BlobAddress,
) -> Result<Vec<u8>, BlobError> {
    let blob = blobs.get(address, None).await?;
    let read: Vec<Bytes> = blob.body.try_collect().await?;
    Ok(read.concat())
}
