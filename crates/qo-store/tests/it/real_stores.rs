//! The real stores of the tests, opened as a user opens them.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use qo_store::runtime::TokioRuntime;
use qo_store::{OpenOptions, Store, open};
use qo_testkit::{Azurite, SeaweedFs};
use tempfile::TempDir;

/// An empty environment.
pub(crate) fn empty() -> OpenOptions {
    OpenOptions::new(TokioRuntime::shared())
}

pub(crate) fn memory() -> Store {
    open("memory:", &empty()).unwrap()
}

/// An SQLite file in this directory.
pub(crate) fn sqlite(folder: &TempDir) -> Store {
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    open(&url, &empty()).unwrap()
}

/// An environment for the SeaweedFS test server.
pub(crate) fn seaweedfs_options() -> OpenOptions {
    let server = SeaweedFs::shared().unwrap();
    empty()
        .with_var("S3_ENDPOINT", server.endpoint())
        .with_var("AWS_ACCESS_KEY_ID", server.access_key())
        .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key())
}

/// A SeaweedFS bucket with a prefix, which no operation may leave.
pub(crate) fn seaweedfs(bucket: &str) -> Store {
    open(&format!("s3://{bucket}/a/prefix"), &seaweedfs_options()).unwrap()
}

/// An Azurite container with a prefix, which no operation may leave.
pub(crate) fn azurite(server: &Azurite, container: &str) -> Store {
    let options = server
        .variables()
        .into_iter()
        .fold(empty(), |options, (name, value)| {
            options.with_var(name, value)
        });
    open(&format!("az://{container}/a/prefix"), &options).unwrap()
}
