//! A small first-in, first-out cache for parts of SlateDB's tables.
//!
//! The indexes and filters of all tables fit into it, so a lookup of a missing task costs no request. SlateDB's own caches are
//! larger crates than the whole engine. The entries here are small, few and long-lived, so a simple policy is enough.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use slatedb::Error;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache};

pub(super) struct FifoCache {
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<CachedKey, CachedEntry>,
    /// The keys, oldest first. It may contain removed keys.
    order: VecDeque<CachedKey>,
    bytes: usize,
}

impl FifoCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &CachedKey) -> Option<CachedEntry> {
        self.lock().entries.get(key).cloned()
    }
}

impl Inner {
    fn remove(&mut self, key: &CachedKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.size();
        }
    }
}

#[async_trait]
impl DbCache for FifoCache {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.get(key))
    }

    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.get(key))
    }

    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.get(key))
    }

    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.get(key))
    }

    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        let mut inner = self.lock();
        let size = value.size();
        if size > self.bytes_max {
            return;
        }
        inner.remove(&key);
        inner.bytes += size;
        inner.order.push_back(key.clone());
        inner.entries.insert(key, value);
        while inner.bytes > self.bytes_max
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.remove(&oldest);
        }
        // Removed keys that never reach the front must not make the order grow without bound.
        if inner.order.len() > 2 * inner.entries.len() + 1_024 {
            let Inner { entries, order, .. } = &mut *inner;
            order.retain(|key| entries.contains_key(key));
        }
    }

    async fn remove(&self, key: &CachedKey) {
        self.lock().remove(key);
    }

    fn entry_count(&self) -> u64 {
        self.lock().entries.len() as u64
    }
}
