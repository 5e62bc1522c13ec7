//! The store of a scenario, to which any number of processes can connect.

use std::sync::Arc;
use std::time::Duration;

use qo::runtime::{Runtime, TokioRuntime};
use qo::{ClaimRequest, Connect, DirectConfig, LeaseId, OpenOptions, Queue, Task};
use qo_testkit::SeaweedFs;
use tempfile::TempDir;

/// Time limit for anything that should happen soon.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct TestStore {
    url: String,
    options: OpenOptions,
    runtime: Arc<dyn Runtime>,
    /// Configuration of direct mode; `None` for the default.
    pub(crate) config: Option<DirectConfig>,
    /// Whether requests go through a network, so that tests should send fewer.
    pub(crate) is_remote: bool,
    /// The folder of the file, removed at the end of the test.
    folder: Option<TempDir>,
}

impl TestStore {
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

    /// A store in memory, shared by all connections with the same name.
    pub(crate) fn memory(name: &str) -> Self {
        Self::new(format!("memory:{}", name.replace(':', ".")))
    }

    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Self::new(format!("sqlite:{}", folder.path().join("qo.db").display()));
        store.folder = Some(folder);
        store
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
        let mut store = Self::new(format!("s3://{bucket}?engine=objects"));
        store.options = store
            .options
            .with_var("S3_ENDPOINT", server.endpoint())
            .with_var("S3_REGION", "us-east-1")
            .with_var("AWS_ACCESS_KEY_ID", server.access_key())
            .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key());
        store.is_remote = true;
        store
    }

    /// The connection builder of a new process.
    pub(crate) fn connection(&self) -> Connect {
        let connection = Connect::to(self.url.as_str())
            .options(self.options.clone())
            .runtime(Arc::clone(&self.runtime));
        match &self.config {
            Some(config) => connection.direct(config.clone()),
            None => connection,
        }
    }

    /// The queue of a new process. Another test probes the store.
    pub(crate) async fn connect(&self) -> Queue {
        self.connection().skip_probe().open().await.unwrap()
    }
}

/// A claim request for one type in the default queue, which waits.
pub(crate) fn claim_request(worker: &str, task_type: &str) -> ClaimRequest {
    ClaimRequest {
        wait_ms: 20_000,
        ..ClaimRequest::new(worker.parse().unwrap(), vec![task_type.parse().unwrap()])
    }
}

/// The next task of a type, and its lease.
pub(crate) async fn claim_one(queue: &Queue, worker: &str, task_type: &str) -> (Task, LeaseId) {
    let mut tasks = queue
        .claim(&claim_request(worker, task_type))
        .await
        .unwrap();
    assert_eq!(tasks.len(), 1, "one task is due, and one was requested");
    let task = tasks.remove(0);
    let lease = task.lease_id.unwrap();
    (task, lease)
}

/// Polls until `poll` returns a value.
pub(crate) async fn until<T>(
    queue: &Queue,
    what: &str,
    mut poll: impl AsyncFnMut() -> Option<T>,
) -> T {
    let runtime = queue.runtime();
    let deadline = runtime.monotonic() + TIMEOUT;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(
            runtime.monotonic() < deadline,
            "timed out waiting until {what}"
        );
        runtime.sleep(Duration::from_millis(50)).await;
    }
}

/// Runs futures concurrently on all threads, and returns their results.
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
