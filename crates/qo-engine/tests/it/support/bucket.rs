//! A bucket in memory that lives in virtual time, counts its requests, and can be looked into.

use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_core::Timestamp;
use qo_engine::ObjectsEngine;
use qo_engine::objects::ObjectsConfig;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::world::{World, WorldExt};
use qo_store::wrap::{CountingStore, Counts};

use super::TestWorld;
use super::clocked::ClockedStore;

/// A bucket.
pub(crate) struct Bucket {
    pub(crate) world: Arc<TestWorld>,
    objects: Arc<ClockedStore>,
    counting: Arc<CountingStore>,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        let world = TestWorld::new(42);
        let objects = Arc::new(ClockedStore::new(world.clone()));
        let counting = Arc::new(CountingStore::new(objects.clone()));
        Self {
            world,
            objects,
            counting,
        }
    }

    /// The store without the counter.
    pub(crate) fn objects(&self) -> Arc<dyn ObjectStore> {
        self.objects.clone()
    }

    /// Another process on this bucket.
    pub(crate) fn engine(&self) -> ObjectsEngine {
        self.engine_on(self.counting.clone())
    }

    /// Another process that reaches this bucket through a wrapper.
    pub(crate) fn engine_on(&self, objects: Arc<dyn ObjectStore>) -> ObjectsEngine {
        Self::engine_with(objects, self.world.clone(), StoreClock::new())
    }

    /// Another process on a machine whose clock is off, which has learned so from the store.
    pub(crate) fn engine_off_by(&self, offset_ms: i64) -> ObjectsEngine {
        let world = self.world.beside(7, offset_ms);
        let clock = StoreClock::new();
        clock.observe(world.moment(), world.moment(), self.world.now());
        Self::engine_with(self.counting.clone(), world, clock)
    }

    fn engine_with(
        objects: Arc<dyn ObjectStore>,
        world: Arc<dyn World>,
        clock: StoreClock,
    ) -> ObjectsEngine {
        let client = StoreClient::new(
            objects,
            Arc::new(clock),
            Arc::clone(&world),
            ClientConfig::default(),
        );
        ObjectsEngine::new(client, None, world, ObjectsConfig::default())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.world.now()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counting.counts()
    }

    /// All keys under a prefix, in order.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let prefix = Path::from(prefix);
        let metas: Vec<_> = self
            .objects
            .list(Some(&prefix))
            .try_collect()
            .await
            .unwrap();
        let mut keys: Vec<_> = metas
            .into_iter()
            .map(|meta| meta.location.to_string())
            .collect();
        keys.sort();
        keys
    }

    pub(crate) async fn put(&self, key: &str, body: &str) {
        let body = body.to_owned().into_bytes();
        self.objects
            .put(&Path::from(key), body.into())
            .await
            .unwrap();
    }

    pub(crate) async fn get(&self, key: &str) -> Vec<u8> {
        let result = self.objects.get(&Path::from(key)).await.unwrap();
        result.bytes().await.unwrap().to_vec()
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.objects.delete(&Path::from(key)).await.unwrap();
    }

    /// Deletes everything under a prefix.
    pub(crate) async fn delete_all(&self, prefix: &str) {
        for key in self.keys(prefix).await {
            self.delete(&key).await;
        }
    }
}
