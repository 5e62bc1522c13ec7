//! Open stores of every kind, and engines on them.

use std::sync::Arc;
use std::time::Duration;

use qo_direct::{DirectConfig, DirectEngine, IndexMode};
use qo_fixtures::{TestStore, client_of};
use qo_store::probe::ProbeOptions;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{Store, StoreClient};

/// A probe that is over quickly.
pub(crate) fn quick_probe(options: &mut ProbeOptions) {
    options.budget = Duration::from_secs(4);
    options.writers_max = 4;
    options.rounds_max = 1;
}

/// An empty, open store.
pub(crate) struct OpenStore {
    pub(crate) store: Store,
    pub(crate) client: StoreClient,
    pub(crate) runtime: Arc<dyn Runtime>,
    _address: Option<TestStore>,
}

impl OpenStore {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            client: client_of(&store),
            store,
            runtime: TokioRuntime::shared(),
            _address: None,
        }
    }

    fn open(address: TestStore) -> Self {
        let store = address.open();
        Self {
            _address: Some(address),
            ..Self::new(store)
        }
    }

    /// An engine with no knowledge of other engines on this store.
    pub(crate) fn engine(&self, config: DirectConfig) -> DirectEngine {
        DirectEngine::new(
            self.client.clone(),
            self.store.admin.clone(),
            Arc::clone(&self.runtime),
            config,
        )
    }

    pub(crate) fn engine_in(&self, index_mode: IndexMode) -> DirectEngine {
        let mut config = DirectConfig::local();
        config.index_mode = index_mode;
        self.engine(config)
    }
}

pub(crate) fn memory() -> OpenStore {
    OpenStore::open(TestStore::memory())
}

pub(crate) fn sqlite() -> OpenStore {
    OpenStore::open(TestStore::sqlite())
}

pub(crate) fn seaweedfs() -> OpenStore {
    OpenStore::open(TestStore::seaweedfs("ops"))
}

pub(crate) fn seaweedfs_versioned() -> OpenStore {
    OpenStore::open(TestStore::seaweedfs_versioned("ops"))
}

/// A bucket of the shared server, with or without a prefix: `bucket/prefix`.
pub(crate) fn bucket(name: &str) -> OpenStore {
    OpenStore::open(TestStore::bucket(name))
}

/// A bucket of the shared server, opened with this secret key.
pub(crate) fn bucket_with_secret(name: &str, secret: &str) -> OpenStore {
    let address = TestStore::bucket(name);
    OpenStore::open(address.with_variable("AWS_SECRET_ACCESS_KEY", secret))
}
