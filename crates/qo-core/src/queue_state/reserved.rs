//! Ids and keys of stored tasks that this version cannot read.
//!
//! Such a task is not part of the state: it cannot be claimed, listed or changed. But its id and its idempotency key are taken.

use std::collections::BTreeMap;

use crate::id::TaskId;
use crate::task::{Outline, ScopedKey};

/// The reserved ids and keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Reserved {
    /// Why each task cannot be read, and its key.
    ids: BTreeMap<TaskId, (String, Option<ScopedKey>)>,
    keys: BTreeMap<ScopedKey, TaskId>,
}

impl Reserved {
    pub(super) fn insert(&mut self, outline: Outline, reason: String) {
        self.remove(outline.id);
        if let Some(key) = &outline.key {
            self.keys.insert(key.clone(), outline.id);
        }
        self.ids.insert(outline.id, (reason, outline.key));
    }

    pub(super) fn remove(&mut self, id: TaskId) {
        if let Some((_, Some(key))) = self.ids.remove(&id)
            && self.keys.get(&key) == Some(&id)
        {
            self.keys.remove(&key);
        }
    }

    pub(super) fn reason(&self, id: TaskId) -> Option<&str> {
        self.ids.get(&id).map(|(reason, _)| reason.as_str())
    }

    pub(super) fn holder(&self, key: &ScopedKey) -> Option<TaskId> {
        self.keys.get(key).copied()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = (TaskId, &str)> {
        let ids = self.ids.iter();
        ids.map(|(id, (reason, _))| (*id, reason.as_str()))
    }
}
