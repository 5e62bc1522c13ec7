//! Lists as they were some time ago.
//!
//! Each applied write records the state before it. A stale list is a fresh list with the newer writes undone, newest
//! first. Two simultaneous writers of one key may record each other's state incorrectly. The stale list then shows a
//! state from a moment earlier or later, which is stale enough.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ListResult, ObjectMeta};

/// The number of recorded writes. Older ones are visible in every list.
const CHANGES_MAX: usize = 4_096;

#[derive(Debug)]
struct Change {
    at: Duration,
    key: Path,
    before: Option<ObjectMeta>,
}

#[derive(Debug, Default)]
pub(super) struct Changes(VecDeque<Change>);

impl Changes {
    pub(super) fn note(&mut self, at: Duration, key: Path, before: Option<ObjectMeta>) {
        if self.0.len() == CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Change { at, key, before });
    }

    /// The list under `prefix` and after `offset` as of `cutoff`, or before all recorded writes.
    pub(super) fn undo(
        &self,
        fresh: Vec<ObjectMeta>,
        cutoff: Option<Duration>,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> Vec<ObjectMeta> {
        let mut entries: BTreeMap<Path, ObjectMeta> = fresh
            .into_iter()
            .map(|meta| (meta.location.clone(), meta))
            .collect();
        let in_scope =
            |key: &Path| is_below(prefix, key) && offset.is_none_or(|offset| key > offset);
        let newer = self
            .0
            .iter()
            .rev()
            .take_while(|change| cutoff.is_none_or(|cutoff| change.at > cutoff));
        for change in newer.filter(|change| in_scope(&change.key)) {
            match &change.before {
                Some(meta) => entries.insert(change.key.clone(), meta.clone()),
                None => entries.remove(&change.key),
            };
        }
        entries.into_values().collect()
    }
}

fn is_below(prefix: Option<&Path>, key: &Path) -> bool {
    let Some(prefix) = prefix else { return true };
    key != prefix && key.prefix_matches(prefix)
}

/// Reduces a full list to one level, as in a list with a delimiter.
pub(super) fn one_level(prefix: Option<&Path>, entries: Vec<ObjectMeta>) -> ListResult {
    let root = Path::default();
    let prefix = prefix.unwrap_or(&root);
    let mut folders = BTreeSet::new();
    let mut objects = Vec::new();
    for meta in entries {
        let Some(mut parts) = meta.location.prefix_match(prefix) else {
            continue;
        };
        let Some(child) = parts.next() else { continue };
        if parts.next().is_some() {
            folders.insert(prefix.clone().join(child));
        } else {
            drop(parts);
            objects.push(meta);
        }
    }
    ListResult {
        common_prefixes: folders.into_iter().collect(),
        objects,
        extensions: object_store::Extensions::default(),
    }
}
