//! The real stores that tests run on, opened as a user opens them.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use qo_store::runtime::TokioRuntime;
use qo_store::{OpenOptions, Store, open};
use qo_testkit::SeaweedFs;
use tempfile::TempDir;

/// An environment with nothing in it.
pub(crate) fn empty() -> OpenOptions {
    OpenOptions::new(TokioRuntime::shared())
}

pub(crate) fn memory() -> Store {
    open("memory:", &empty()).unwrap()
}

/// An SQLite file in this folder.
pub(crate) fn sqlite(folder: &TempDir) -> Store {
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    open(&url, &empty()).unwrap()
}

/// An environment that leads to the SeaweedFS server of the tests.
pub(crate) fn seaweedfs_options() -> OpenOptions {
    let server = SeaweedFs::shared().unwrap();
    empty()
        .with_var("S3_ENDPOINT", server.endpoint())
        .with_var("AWS_ACCESS_KEY_ID", server.access_key())
        .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key())
}

/// A bucket of SeaweedFS, below a prefix: what is asked of it must not leak out of there.
pub(crate) fn seaweedfs(bucket: &str) -> Store {
    open(&format!("s3://{bucket}/a/prefix"), &seaweedfs_options()).unwrap()
}
