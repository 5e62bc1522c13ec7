//! The stores that the tests of index modes, `init` and `doctor` run on.

use std::sync::Arc;

use qo_direct::DirectEngine;
use qo_direct::{DirectConfig, IndexMode};
use qo_store::client::ClientConfig;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, Store, StoreClient, open};
use qo_testkit::SeaweedFs;
use tempfile::TempDir;

/// An empty store.
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) client: StoreClient,
    pub(crate) runtime: Arc<dyn Runtime>,
    _folder: Option<TempDir>,
}

impl Place {
    pub(crate) fn new(store: Store, folder: Option<TempDir>) -> Self {
        let runtime = TokioRuntime::shared();
        let client = StoreClient::new(
            Arc::clone(&store.objects),
            Arc::clone(&store.clock),
            Arc::clone(&runtime),
            ClientConfig::default(),
        );
        Self {
            store,
            client,
            runtime,
            _folder: folder,
        }
    }

    /// An engine that knows nothing of what others have done here.
    pub(crate) fn engine(&self, config: DirectConfig) -> DirectEngine {
        DirectEngine::new(
            self.client.clone(),
            self.store.admin.clone(),
            Arc::clone(&self.runtime),
            config,
        )
    }

    pub(crate) fn engine_in(&self, index_mode: IndexMode) -> DirectEngine {
        self.engine(DirectConfig {
            index_mode,
            ..DirectConfig::local()
        })
    }
}

fn options() -> OpenOptions {
    OpenOptions::new(TokioRuntime::shared())
}

pub(crate) fn memory() -> Place {
    Place::new(open("memory:", &options()).unwrap(), None)
}

pub(crate) fn sqlite() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    Place::new(open(&url, &options()).unwrap(), Some(folder))
}

pub(crate) fn seaweedfs() -> Place {
    let server = SeaweedFs::shared().unwrap();
    bucket(&server.unique_bucket("ops").unwrap(), "")
}

pub(crate) fn seaweedfs_versioned() -> Place {
    let server = SeaweedFs::shared().unwrap();
    bucket(&server.unique_versioned_bucket("ops").unwrap(), "")
}

/// A bucket of the shared server, below a prefix that is empty or starts with a slash.
pub(crate) fn bucket(name: &str, prefix: &str) -> Place {
    open_bucket(
        &format!("s3://{name}{prefix}"),
        SeaweedFs::shared().unwrap().secret_key(),
    )
}

/// A bucket of the shared server, opened with a secret of the caller's.
pub(crate) fn bucket_with_secret(name: &str, secret: &str) -> Place {
    open_bucket(&format!("s3://{name}"), secret)
}

fn open_bucket(url: &str, secret: &str) -> Place {
    let server = SeaweedFs::shared().unwrap();
    let options = options()
        .with_var("S3_ENDPOINT", server.endpoint())
        .with_var("S3_REGION", "us-east-1")
        .with_var("AWS_ACCESS_KEY_ID", server.access_key())
        .with_var("AWS_SECRET_ACCESS_KEY", secret);
    Place::new(open(url, &options).unwrap(), None)
}
