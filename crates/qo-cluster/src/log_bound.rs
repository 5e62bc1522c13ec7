//! Deletes the beginning of the log. No other part does.
//!
//! Only what a snapshot contains is deleted, and openraft waits for entries that are just being sent. Of the rest, these are kept:
//!
//! | entries | reason |
//! | --- | --- |
//! | the last ones before the snapshot: `kept_entries` of them, or the newest half of `snapshot_bytes` if the log is larger than that | for nodes that are a little behind; entries can have a megabyte each |
//! | those after a snapshot that is being sent, until the node that receives it has caught up | that node needs them next. Without them it needs another snapshot, and while that one is sent, the log goes on: a node would never catch up with a busy cluster. openraft does not wait for snapshots |
//!
//! The second kind is bounded, so that a node that is slow or gone cannot fill the disk of the leader: by [`PATIENCE`] without progress after
//! the snapshot has arrived, and by [`HELD_SHARE`] times `snapshot_bytes` in any case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use qo_store::runtime::Runtime;

use crate::node::NodeShared;

/// How often the log is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long entries are kept for a node that has received a snapshot and makes no progress.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that is behind by so many entries has caught up.
const CAUGHT_UP_LAG: u64 = 100;
/// How much larger than usual the log may be because of snapshots that are sent.
const HELD_SHARE: u64 = 16;

/// The snapshots that are sent to other nodes. Clones share everything.
#[derive(Clone)]
pub(crate) struct Transfers(Arc<Inner>);

struct Inner {
    runtime: Arc<dyn Runtime>,
    receivers: Mutex<Receivers>,
}

#[derive(Default)]
struct Receivers {
    by_node: BTreeMap<u64, Receiver>,
    transfers: u64,
}

/// A node that gets a snapshot, or has got one and needs the entries after it.
struct Receiver {
    transfer: u64,
    is_sending: bool,
    /// It has the entries up to this one, or will have them when the snapshot is installed.
    has: u64,
    /// When it last made progress.
    progress_at: Duration,
}

/// A snapshot that is being sent. Unless it is [finished](Self::finish), nothing is kept for its receiver after it was dropped.
pub(crate) struct Transfer {
    transfers: Transfers,
    node: u64,
    number: u64,
}

impl Transfers {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self(Arc::new(Inner {
            runtime,
            receivers: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Receivers> {
        let receivers = self.0.receivers.lock();
        receivers.unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot that ends with the entry `last` is sent to a node.
    pub(crate) fn begin(&self, node: u64, last: u64) -> Transfer {
        let progress_at = self.0.runtime.monotonic();
        let mut receivers = self.lock();
        receivers.transfers += 1;
        let number = receivers.transfers;
        let receiver = Receiver {
            transfer: number,
            is_sending: true,
            has: last,
            progress_at,
        };
        receivers.by_node.insert(node, receiver);
        Transfer {
            transfers: self.clone(),
            node,
            number,
        }
    }

    /// The last entry that no receiver needs, if there are receivers. `matched` says how far the log of a node is known to reach.
    fn unneeded(&self, log_last: u64, matched: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let now = self.0.runtime.monotonic();
        let mut receivers = self.lock();
        receivers.by_node.retain(|node, receiver| {
            if receiver.is_sending {
                return true;
            }
            if let Some(matched) = matched(*node)
                && matched > receiver.has
            {
                receiver.has = matched;
                receiver.progress_at = now;
            }
            let is_waiting = now.saturating_sub(receiver.progress_at) < PATIENCE;
            is_waiting && log_last.saturating_sub(receiver.has) > CAUGHT_UP_LAG
        });
        receivers.by_node.values().map(|one| one.has).min()
    }
}

impl Transfer {
    /// The snapshot is installed. From now on the receiver needs the entries after it.
    pub(crate) fn finish(self) {
        let now = self.transfers.0.runtime.monotonic();
        let mut receivers = self.transfers.lock();
        if let Some(receiver) = receivers.by_node.get_mut(&self.node)
            && receiver.transfer == self.number
        {
            receiver.is_sending = false;
            receiver.progress_at = now;
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let mut receivers = self.transfers.lock();
        let receiver = receivers.by_node.get(&self.node);
        if receiver.is_some_and(|one| one.is_sending && one.transfer == self.number) {
            receivers.by_node.remove(&self.node);
        }
    }
}

/// Keeps the log small, until the node is stopped.
pub(crate) async fn bound_log(node: Arc<NodeShared>) {
    loop {
        tokio::select! {
            biased;
            () = node.stopped() => return,
            () = node.runtime.sleep(CHECK_INTERVAL) => {}
        }
        let (snapshot, replication) = {
            let metrics = node.raft.metrics();
            let metrics = metrics.borrow_watched();
            (metrics.snapshot, metrics.replication.clone())
        };
        let snapshot = snapshot.map(|id| id.index);
        let matched = |id| Some(replication.as_ref()?.get(&id)?.as_ref()?.index);
        let log = node.log.stats();
        let unneeded = node
            .transfers
            .unneeded(log.last_index.unwrap_or(0), matched);
        let config = &node.config;
        let limit = match unneeded {
            Some(unneeded) if log.bytes <= config.snapshot_bytes.saturating_mul(HELD_SHARE) => {
                unneeded
            }
            _ => u64::MAX,
        };
        let is_large = log.bytes > config.snapshot_bytes;
        let beyond = is_large
            .then(|| node.log.last_beyond(config.snapshot_bytes / 2))
            .flatten()
            .map(|index| index.min(limit));
        let trigger = node.raft.trigger();
        if let Some(snapshot) = snapshot {
            let old = snapshot.checked_sub(config.kept_entries);
            let upto = old.max(beyond).map(|upto| upto.min(snapshot).min(limit));
            // Each purge costs a sync, so it should delete several entries.
            let batch = if is_large { 1 } else { config.kept_entries / 4 };
            if let Some(upto) = upto
                && upto >= log.first_index + batch
                && trigger.purge_log(upto).await.is_err()
            {
                return;
            }
        }
        // Few entries can be large. The snapshot takes a while; what it allows is deleted at a later check.
        if beyond > snapshot && trigger.snapshot().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use qo_core::Timestamp;
    use qo_store::runtime::BoxFuture;

    use super::*;

    /// A clock in seconds.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl Runtime for Clock {
        fn now(&self) -> Timestamp {
            Timestamp::MIN
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::SeqCst))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<()> {
            Box::pin(std::future::ready(()))
        }

        fn spawn(&self, _: BoxFuture<()>) {}

        fn random(&self) -> u64 {
            0
        }
    }

    fn new() -> (Arc<Clock>, Transfers) {
        let clock = Arc::new(Clock::default());
        (Arc::clone(&clock), Transfers::new(clock))
    }

    #[test]
    fn entries_after_a_snapshot_are_kept_until_its_receiver_has_them() {
        let (clock, transfers) = new();
        assert_eq!(transfers.unneeded(5_000, |_| None), None);
        let (slow, fast) = (transfers.begin(2, 1_000), transfers.begin(3, 2_000));
        assert_eq!(transfers.unneeded(5_000, |_| Some(4_000)), Some(1_000));
        // However long it takes.
        clock.0.store(1_000, Ordering::SeqCst);
        assert_eq!(transfers.unneeded(5_000, |_| None), Some(1_000));
        slow.finish();
        fast.finish();
        let matched = |node| Some(if node == 2 { 1_500 } else { 4_950 });
        assert_eq!(transfers.unneeded(5_000, matched), Some(1_500));
        assert_eq!(transfers.unneeded(5_000, |_| Some(4_990)), None);
        assert!(transfers.lock().by_node.is_empty());
    }

    #[test]
    fn nothing_is_kept_for_a_node_that_is_gone() {
        let (clock, transfers) = new();
        // A transfer that failed, while the next one has begun.
        let failed = transfers.begin(2, 1_000);
        let next = transfers.begin(2, 3_000);
        drop(failed);
        assert_eq!(transfers.unneeded(5_000, |_| None), Some(3_000));
        next.finish();
        clock.0.store(29, Ordering::SeqCst);
        assert_eq!(transfers.unneeded(5_000, |_| None), Some(3_000));
        // Progress gives it more time.
        assert_eq!(transfers.unneeded(5_000, |_| Some(3_001)), Some(3_001));
        clock.0.store(58, Ordering::SeqCst);
        assert_eq!(transfers.unneeded(5_000, |_| Some(3_001)), Some(3_001));
        clock.0.store(59, Ordering::SeqCst);
        assert_eq!(transfers.unneeded(5_000, |_| Some(3_001)), None);
        drop(transfers.begin(2, 4_000));
        assert_eq!(transfers.unneeded(5_000, |_| None), None);
    }
}
