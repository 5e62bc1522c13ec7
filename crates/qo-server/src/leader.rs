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

    /// Whether it is known, without a request, that this process leads. To a ping that names this process, a leader that does not
    /// know it responds with 503, so that a standby challenges it.
    fn is_confirmed(&self) -> bool;

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

    fn is_confirmed(&self) -> bool {
        BrokerHandle::is_confirmed(self)
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
