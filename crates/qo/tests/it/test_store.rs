//! Where a scenario runs: a store, to which any number of processes can connect.

use std::sync::Arc;
use std::time::Duration;

use qo::{ClaimRequest, Connect, DirectConfig, LeaseId, OpenOptions, Queue, Task};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_testkit::SeaweedFs;
use tempfile::TempDir;

/// How long anything may take that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Place {
    url: String,
    options: OpenOptions,
    runtime: Arc<dyn Runtime>,
    /// Settings of the engine; what `connect` chooses, if there are none.
    pub(crate) config: Option<DirectConfig>,
    /// Whether requests go through a network, so that fewer must do.
    pub(crate) is_remote: bool,
    /// Where its file is, removed with the place.
    folder: Option<TempDir>,
}

impl Place {
    fn new(url: String) -> Self {
        let runtime = TokioRuntime::shared();
        Self {
            url,
            options: OpenOptions::new(Arc::clone(&runtime)),
            runtime,
            config: None,
            is_remote: false,
            folder: None,
        }
    }

    /// One that all connections of one name share.
    pub(crate) fn memory(name: &str) -> Self {
        Self::new(format!("memory:{}", name.replace(':', ".")))
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut place = Self::new(format!("sqlite:{}", folder.path().join("qo.db").display()));
        place.folder = Some(folder);
        place
    }

    pub(crate) fn seaweedfs() -> Self {
        let server = SeaweedFs::shared().unwrap();
        Self::bucket(server, &server.unique_bucket("qo").unwrap())
    }

    pub(crate) fn seaweedfs_with_versions() -> Self {
        let server = SeaweedFs::shared().unwrap();
        Self::bucket(server, &server.unique_versioned_bucket("qo").unwrap())
    }

    fn bucket(server: &SeaweedFs, bucket: &str) -> Self {
        let mut place = Self::new(format!("s3://{bucket}?engine=objects"));
        place.options = place
            .options
            .with_var("S3_ENDPOINT", server.endpoint())
            .with_var("S3_REGION", "us-east-1")
            .with_var("AWS_ACCESS_KEY_ID", server.access_key())
            .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key());
        place.is_remote = true;
        place
    }

    /// A connection to be, of a new process.
    pub(crate) fn connection(&self) -> Connect {
        let connection = Connect::to(self.url.as_str())
            .options(self.options.clone())
            .runtime(Arc::clone(&self.runtime));
        match &self.config {
            Some(config) => connection.objects(config.clone()),
            None => connection,
        }
    }

    /// A new process. The store is known to be good, and probed by another test.
    pub(crate) async fn connect(&self) -> Queue {
        self.connection().skip_probe().open().await.unwrap()
    }
}

/// A wish for work of one type in the default queue, that waits.
pub(crate) fn wish(worker: &str, task_type: &str) -> ClaimRequest {
    ClaimRequest {
        wait_ms: 20_000,
        ..ClaimRequest::new(worker.parse().unwrap(), vec![task_type.parse().unwrap()])
    }
}

/// The next task of a type, and its lease.
pub(crate) async fn claim_one(queue: &Queue, worker: &str, task_type: &str) -> (Task, LeaseId) {
    let mut tasks = queue.claim(&wish(worker, task_type)).await.unwrap();
    assert_eq!(tasks.len(), 1, "one is there, and one was asked for");
    let task = tasks.remove(0);
    let lease = task.lease_id.unwrap();
    (task, lease)
}

/// Looks again and again until something is there.
pub(crate) async fn until<T>(
    queue: &Queue,
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let runtime = queue.runtime();
    let deadline = runtime.monotonic() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            runtime.monotonic() < deadline,
            "waited in vain until {what}"
        );
        runtime.sleep(Duration::from_millis(50)).await;
    }
}

/// Runs the same thing many times at once, on all threads, and returns what each gave.
pub(crate) async fn at_once<T, F>(count: usize, each: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut set = tokio::task::JoinSet::new();
    for number in 0..count {
        set.spawn(each(number));
    }
    set.join_all().await
}
