//! Which of several servers of a queue may answer for it.

#[cfg(feature = "slate")]
use qo::BrokerHandle;
use qo_store::runtime::BoxFuture;

/// Whether this process may serve, and who does otherwise.
///
/// It is asked before each request and again before its answer, so that a process that was asleep in between does not answer for a
/// queue that is no longer its own.
pub trait Leader: Send + Sync + 'static {
    /// Names this process. A request that names another one is refused.
    fn id(&self) -> &str;

    /// Makes sure that this process may serve at this moment, and says as which leader, counted from the first; nothing on a standby, and
    /// once another one took over.
    fn confirm(&self) -> BoxFuture<Option<u64>>;

    /// Returns once this process does not serve as this leader any more.
    fn over(&self, epoch: u64) -> BoxFuture<()>;

    /// Where the leader is, if it is somebody else.
    fn elsewhere(&self) -> Option<String>;
}

#[cfg(feature = "slate")]
impl Leader for BrokerHandle {
    fn id(&self) -> &str {
        BrokerHandle::id(self)
    }

    fn confirm(&self) -> BoxFuture<Option<u64>> {
        let handle = self.clone();
        Box::pin(async move { BrokerHandle::confirm(&handle).await })
    }

    fn over(&self, epoch: u64) -> BoxFuture<()> {
        let handle = self.clone();
        Box::pin(async move { BrokerHandle::over(&handle, epoch).await })
    }

    fn elsewhere(&self) -> Option<String> {
        BrokerHandle::elsewhere(self)
    }
}
