//! Index garbage collection: deletes stale index entries in batches, in the background.
//!
//! A stale entry costs only the read that finds it stale, and no index key is ever reused. A delete may therefore happen late,
//! twice or never; in the last case the lease reaper or the sweeper finds the entry.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_store::StoreClient;
use qo_store::runtime::Runtime;

use super::lock;

/// The maximum number of queued deletes. Entries beyond it are left to the lease reaper and the sweeper.
const QUEUED_MAX: usize = 100_000;

#[derive(Clone)]
pub(super) struct IndexGc {
    shared: Arc<IndexGcShared>,
}

struct IndexGcShared {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    delay: Duration,
    pending: Mutex<PendingDeletes>,
    /// Locked during a delete, so that a flush also waits for a batch that another caller is deleting.
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct PendingDeletes {
    queued: BTreeSet<String>,
    /// The keys that are being deleted right now.
    in_flight: BTreeSet<String>,
    flush_scheduled: bool,
}

impl IndexGc {
    pub(super) fn new(client: StoreClient, runtime: Arc<dyn Runtime>, delay: Duration) -> Self {
        Self {
            shared: Arc::new(IndexGcShared {
                client,
                runtime,
                delay,
                pending: Mutex::default(),
                flushing: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Queues entries for deletion.
    pub(super) fn enqueue(&self, keys: impl IntoIterator<Item = impl fmt::Display>) {
        let mut pending = lock(&self.shared.pending);
        for key in keys {
            if pending.queued.len() < QUEUED_MAX {
                pending.queued.insert(key.to_string());
            }
        }
        if pending.queued.is_empty() || pending.flush_scheduled {
            return;
        }
        pending.flush_scheduled = true;
        drop(pending);
        let index_gc = self.clone();
        self.shared.runtime.spawn(Box::pin(async move {
            index_gc.shared.runtime.sleep(index_gc.shared.delay).await;
            index_gc.flush().await;
        }));
    }

    /// Whether an entry is queued for deletion or being deleted. A LIST may still show it.
    pub(super) fn is_pending(&self, key: &str) -> bool {
        let pending = lock(&self.shared.pending);
        pending.queued.contains(key) || pending.in_flight.contains(key)
    }

    /// Deletes the queued entries.
    pub(super) async fn flush(&self) {
        let _flushing = self.shared.flushing.lock().await;
        let Some(mut batch) = DeleteBatch::begin(&self.shared) else {
            return;
        };
        if let Err(error) = self.shared.client.delete_many(&batch.keys).await {
            tracing::debug!(%error, "could not delete stale index entries; they are left to the lease reaper and the sweeper");
        }
        batch.sent = true;
    }
}

/// A batch of entries that is being deleted. If the flush is cancelled, dropping the batch queues its keys again: while a key counts
/// as being deleted, this process ignores its entry.
struct DeleteBatch<'a> {
    shared: &'a IndexGcShared,
    keys: Vec<String>,
    sent: bool,
}

impl<'a> DeleteBatch<'a> {
    fn begin(shared: &'a IndexGcShared) -> Option<Self> {
        let keys: Vec<String> = {
            let mut pending = lock(&shared.pending);
            // Keys queued from here on need another flush. Earlier ones do not: this flush has the lock and takes them.
            pending.flush_scheduled = false;
            let keys = std::mem::take(&mut pending.queued);
            pending.in_flight.extend(keys.iter().cloned());
            keys.into_iter().collect()
        };
        if keys.is_empty() {
            return None;
        }
        Some(Self {
            shared,
            keys,
            sent: false,
        })
    }
}

impl Drop for DeleteBatch<'_> {
    fn drop(&mut self) {
        let mut pending = lock(&self.shared.pending);
        for key in self.keys.drain(..) {
            pending.in_flight.remove(&key);
            if !self.sent && pending.queued.len() < QUEUED_MAX {
                pending.queued.insert(key);
            }
        }
    }
}
