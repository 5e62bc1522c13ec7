//! The limits that have no room, as far as this process knows.

use std::collections::BTreeMap;
use std::sync::Mutex;

use qo_core::{DocumentName, Timestamp};

use super::super::lock;

/// The closed gates, each with the time of the next look at its limit.
#[derive(Default)]
pub(super) struct Gates(Mutex<BTreeMap<DocumentName, Timestamp>>);

impl Gates {
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(super) fn is_closed(&self, name: &DocumentName) -> bool {
        lock(&self.0).contains_key(name)
    }

    pub(super) fn close(&self, name: &DocumentName, look_at: Timestamp) {
        lock(&self.0).insert(name.clone(), look_at);
    }

    /// Opens a gate. Returns whether it was closed.
    pub(super) fn open(&self, name: &DocumentName) -> bool {
        lock(&self.0).remove(name).is_some()
    }

    pub(super) fn open_all(&self) {
        lock(&self.0).clear();
    }

    /// The gates whose limit must be looked at.
    pub(super) fn due(&self, now: Timestamp) -> Vec<DocumentName> {
        let gates = lock(&self.0);
        let due = gates.iter().filter(|(_, look_at)| **look_at <= now);
        due.map(|(name, _)| name.clone()).collect()
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        lock(&self.0).values().min().copied()
    }
}
