//! A small cache for parts of SlateDB's tables, in the order in which they came.
//!
//! The indexes and filters of all tables fit into it, so that a look for a task that is not there costs no request. SlateDB's own
//! caches are larger crates than the whole engine; what is cached here is small, few and long-lived, and needs no cleverness.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use slatedb::Error;
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache};

pub(super) struct Cache {
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<CachedKey, CachedEntry>,
    /// Oldest first; those that were removed are still in it.
    order: VecDeque<CachedKey>,
    bytes: usize,
}

impl Cache {
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
impl DbCache for Cache {
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
        // What was removed and never came to the front of the order must not make it grow for ever.
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
