//! The limits that are full, as far as this process knows.

use std::collections::BTreeMap;
use std::sync::Mutex;

use qo_core::{DocumentName, Timestamp};

use super::super::lock;

/// Full limits, each with the time of its next check.
#[derive(Default)]
pub(super) struct FullLimits(Mutex<BTreeMap<DocumentName, Timestamp>>);

impl FullLimits {
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(super) fn contains(&self, name: &DocumentName) -> bool {
        lock(&self.0).contains_key(name)
    }

    pub(super) fn insert(&self, name: &DocumentName, check_at: Timestamp) {
        lock(&self.0).insert(name.clone(), check_at);
    }

    /// Removes a limit that has room again. Returns whether it was full.
    pub(super) fn remove(&self, name: &DocumentName) -> bool {
        lock(&self.0).remove(name).is_some()
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// The limits that must be checked now.
    pub(super) fn due(&self, now: Timestamp) -> Vec<DocumentName> {
        let full = lock(&self.0);
        let due = full.iter().filter(|(_, check_at)| **check_at <= now);
        due.map(|(name, _)| name.clone()).collect()
    }

    /// When the next check is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        lock(&self.0).values().min().copied()
    }
}
