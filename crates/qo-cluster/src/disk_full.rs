//! Whether the disk of this node is full.
//!
//! The writers of the log and of the rows wait while there is no space, and continue by themselves. Callers must not wait for them: changes are
//! rejected at once, and changes in progress get an error after a moment.

use std::sync::Arc;
use std::time::Duration;

use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::runtime::Runtime;
use tokio::sync::watch;

/// How long a caller waits for a disk that is full.
const PATIENCE: Duration = Duration::from_secs(2);

/// A part that writes to the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Log,
    Rows,
}

/// Which parts found the disk full. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct DiskFull(Arc<watch::Sender<[bool; 2]>>);

impl Default for DiskFull {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new([false; 2])))
    }
}

impl DiskFull {
    /// Records whether a part found room.
    pub(crate) fn set(&self, part: Part, is_full: bool) {
        self.0.send_if_modified(|parts| {
            let part = &mut parts[part as usize];
            std::mem::replace(part, is_full) != is_full
        });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().contains(&true)
    }

    /// Runs a call. A change is refused while the disk is full, and nothing waits long for it.
    pub(crate) async fn guard<T>(
        &self,
        runtime: &dyn Runtime,
        is_change: bool,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        if is_change && self.is_full() {
            return Err(error(false));
        }
        tokio::select! {
            biased;
            result = call => result,
            () = self.for_a_while(runtime) => Err(error(is_change)),
        }
    }

    /// Resolves when the disk has been full for a while.
    async fn for_a_while(&self, runtime: &dyn Runtime) {
        let mut parts = self.0.subscribe();
        // `self` owns the sender, so the waits do not fail.
        while parts.wait_for(|parts| parts.contains(&true)).await.is_ok() {
            tokio::select! {
                biased;
                _ = parts.wait_for(|parts| !parts.contains(&true)) => {}
                () = runtime.sleep(PATIENCE) => return,
            }
        }
    }
}

/// The error of a caller.
fn error(in_doubt: bool) -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: "cluster".to_owned(),
        detail: "the disk of the leader is full, so the cluster can only be read; make room on it, and the node continues by itself"
            .to_owned(),
        attempts: 1,
        elapsed: Duration::ZERO,
        in_doubt,
    })
}
