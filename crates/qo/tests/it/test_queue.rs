//! The queue of a scenario: a store to which any number of processes can connect.

use std::time::Duration;

use qo::{ClaimRequest, Connect, DirectConfig, LeaseId, Queue, Task};
use qo_fixtures::TestStore;
use qo_store::runtime::TokioRuntime;

/// How long to wait for something that should happen at once.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) struct TestQueue {
    address: TestStore,
    /// The engine's settings; `None` means the defaults of `connect`.
    pub(crate) config: Option<DirectConfig>,
}

impl TestQueue {
    fn new(address: TestStore) -> Self {
        let config = None;
        Self { address, config }
    }

    /// A queue in memory. All connections with one name share it.
    pub(crate) fn memory(name: &str) -> Self {
        Self::new(TestStore::memory_named(name))
    }

    pub(crate) fn sqlite() -> Self {
        Self::new(TestStore::sqlite())
    }

    pub(crate) fn seaweedfs() -> Self {
        Self::new(TestStore::seaweedfs("qo").with_engine("direct"))
    }

    pub(crate) fn seaweedfs_with_versions() -> Self {
        Self::new(TestStore::seaweedfs_versioned("qo").with_engine("direct"))
    }

    /// Whether requests go through a network, so that a test should make fewer.
    pub(crate) fn is_remote(&self) -> bool {
        self.address.is_remote()
    }

    /// The connection builder of a new process.
    pub(crate) fn connection(&self) -> Connect {
        let connection = Connect::to(self.address.url())
            .options(self.address.options())
            .runtime(TokioRuntime::shared());
        match &self.config {
            Some(config) => connection.direct(config.clone()),
            None => connection,
        }
    }

    /// Connects a new process. Another test covers the probe.
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

/// Claims the next task of a type.
pub(crate) async fn claim_one(queue: &Queue, worker: &str, task_type: &str) -> (Task, LeaseId) {
    let request = claim_request(worker, task_type);
    let mut tasks = queue.claim(&request).await.unwrap();
    assert_eq!(tasks.len(), 1, "a claim of one task returns one");
    let task = tasks.remove(0);
    let lease = task.lease_id.unwrap();
    (task, lease)
}
