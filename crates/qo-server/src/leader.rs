//! Decides which of several servers may serve a queue.

#[cfg(feature = "slate")]
use qo::BrokerHandle;
use qo_store::runtime::BoxFuture;

/// Whether this process may serve, and otherwise which process does.
///
/// It is checked before each request and again before its response, so that a process that was suspended in between does not serve
/// a queue that another process leads.
pub trait Leader: Send + Sync + 'static {
    /// The id of this process. A request for another process is rejected.
    fn id(&self) -> &str;

    /// Confirms that this process may serve now, and returns its epoch. `None` on a standby, and once another process has taken
    /// over.
    fn confirm(&self) -> BoxFuture<Option<u64>>;

    /// Waits until this process no longer serves in this epoch.
    fn epoch_ended(&self, epoch: u64) -> BoxFuture<()>;

    /// The address of the leader, if another process leads.
    fn leader_address(&self) -> Option<String>;
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

    fn epoch_ended(&self, epoch: u64) -> BoxFuture<()> {
        let handle = self.clone();
        Box::pin(async move { BrokerHandle::over(&handle, epoch).await })
    }

    fn leader_address(&self) -> Option<String> {
        BrokerHandle::elsewhere(self)
    }
}
