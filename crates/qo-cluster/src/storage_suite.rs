//! openraft's own test suites on the storage and the runtime of a node.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use qo_store::runtime::TokioRuntime;
use tempfile::TempDir;

use crate::blocking::{BlockingPool, Threads};
use crate::log::{DiskFiles, LogStore};
use crate::machine::StateMachine;
use crate::raft_types::TypeConfig;
use crate::rows::{self, CollectedRows, MemoryRows, RowStore, SqliteRows};
use crate::runtime::NodeRuntime;

struct Builder {
    /// Whether rows are in a file, as on a node, or in memory, as in the simulator.
    on_disk: bool,
}

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let directory = tempfile::tempdir().unwrap();
        let runtime = TokioRuntime::shared();
        let files = Arc::new(DiskFiles::open(&directory.path().join("log")).unwrap());
        // Small files, so that the suite also begins and deletes some, and a small cache, so that it also reads them.
        let log = LogStore::open(files, Arc::clone(&runtime), 256, 256).await;
        let rows: Arc<dyn RowStore> = if self.on_disk {
            Arc::new(SqliteRows::open(directory.path(), rows::CACHE_BYTES).unwrap())
        } else {
            Arc::new(MemoryRows::default())
        };
        let pool: Arc<dyn BlockingPool> = Arc::new(Threads);
        let rows = CollectedRows::new(rows, 256);
        let machine = StateMachine::open(rows, pool, runtime).await;
        Ok((directory, log.unwrap(), machine.unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_storage_suite_passes_on_disk() {
    let builder = Builder { on_disk: true };
    Suite::test_all(builder).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_storage_suite_passes_on_rows_in_memory() {
    let builder = Builder { on_disk: false };
    Suite::test_all(builder).await.unwrap();
}

#[test]
fn openrafts_runtime_suite_passes() {
    openraft::testing::runtime::Suite::<NodeRuntime>::test_all();
}
