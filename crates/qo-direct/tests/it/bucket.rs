//! Engines of direct mode on a bucket in memory.

use std::sync::Arc;

use object_store::ObjectStore;
use qo_direct::{DirectConfig, DirectEngine};
use qo_fixtures::Bucket;

/// Processes that use a bucket.
pub(crate) trait Engines {
    /// Another process on this bucket.
    fn engine(&self) -> DirectEngine;

    /// Another process that reaches this bucket through a wrapper.
    fn engine_on(&self, objects: Arc<dyn ObjectStore>) -> DirectEngine;

    /// Another process on a machine whose clock is off, which has learned so from the store.
    fn engine_off_by(&self, offset_ms: i64) -> DirectEngine;
}

impl Engines for Bucket {
    fn engine(&self) -> DirectEngine {
        self.engine_on(self.counted())
    }

    fn engine_on(&self, objects: Arc<dyn ObjectStore>) -> DirectEngine {
        let client = self.client_on(objects);
        DirectEngine::new(client, None, self.runtime.clone(), DirectConfig::default())
    }

    fn engine_off_by(&self, offset_ms: i64) -> DirectEngine {
        let (client, runtime) = self.client_off_by(offset_ms);
        DirectEngine::new(client, None, runtime, DirectConfig::default())
    }
}
