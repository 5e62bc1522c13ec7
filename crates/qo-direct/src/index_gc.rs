//! Deletes index entries that are no longer true, many at a time and in the background.
//!
//! A stale entry does no harm but the read that finds it out, and no index key is ever used twice, so that a deletion may
//! come late, come twice, or never come: then the monitor finds the entry.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_store::StoreClient;
use qo_store::runtime::Runtime;

use super::lock;

/// More than this are not gathered; what comes on top is left to the monitor.
const GATHERED_MAX: usize = 100_000;

#[derive(Clone)]
pub(super) struct IndexGc {
    shared: Arc<Shared>,
}

struct Shared {
    client: StoreClient,
    runtime: Arc<dyn Runtime>,
    delay: Duration,
    state: Mutex<State>,
    /// Held while entries are being deleted, so that whoever flushes waits for those that somebody else is at.
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    keys: BTreeSet<String>,
    /// What is being deleted right now.
    leaving: BTreeSet<String>,
    scheduled: bool,
}

impl IndexGc {
    pub(super) fn new(client: StoreClient, runtime: Arc<dyn Runtime>, delay: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                runtime,
                delay,
                state: Mutex::default(),
                flushing: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Has entries deleted soon.
    pub(super) fn sweep(&self, keys: impl IntoIterator<Item = impl fmt::Display>) {
        let mut state = lock(&self.shared.state);
        for key in keys {
            if state.keys.len() < GATHERED_MAX {
                state.keys.insert(key.to_string());
            }
        }
        if state.keys.is_empty() || state.scheduled {
            return;
        }
        state.scheduled = true;
        drop(state);
        let index_gc = self.clone();
        self.shared.runtime.spawn(Box::pin(async move {
            index_gc.shared.runtime.sleep(index_gc.shared.delay).await;
            index_gc.flush().await;
        }));
    }

    /// Whether an entry is known to be stale, although a list may still show it.
    pub(super) fn is_sweeping(&self, key: &str) -> bool {
        let state = lock(&self.shared.state);
        state.keys.contains(key) || state.leaving.contains(key)
    }

    /// Deletes what was gathered.
    pub(super) async fn flush(&self) {
        let _flushing = self.shared.flushing.lock().await;
        let Some(mut leaving) = Leaving::begin(&self.shared) else {
            return;
        };
        if let Err(error) = self.shared.client.delete_many(&leaving.keys).await {
            tracing::debug!(%error, "stale index entries stay for the monitor");
        }
        leaving.asked = true;
    }
}

/// Entries that are being deleted. If whoever waits for that stops waiting, they are gathered again: as long as they counted as
/// being deleted, nobody in this process would look at them.
struct Leaving<'a> {
    shared: &'a Shared,
    keys: Vec<String>,
    asked: bool,
}

impl<'a> Leaving<'a> {
    fn begin(shared: &'a Shared) -> Option<Self> {
        let keys: Vec<String> = {
            let mut state = lock(&shared.state);
            // From here on what is gathered is for the next time. Not before: one is enough to wait for the lock.
            state.scheduled = false;
            let keys = std::mem::take(&mut state.keys);
            state.leaving.extend(keys.iter().cloned());
            keys.into_iter().collect()
        };
        if keys.is_empty() {
            return None;
        }
        Some(Self {
            shared,
            keys,
            asked: false,
        })
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        for key in self.keys.drain(..) {
            state.leaving.remove(&key);
            if !self.asked && state.keys.len() < GATHERED_MAX {
                state.keys.insert(key);
            }
        }
    }
}
