//! Lists as they were some time ago.
//!
//! Each applied write notes what was there before it. To answer as of an earlier time, the newer writes are undone on a
//! fresh list, newest first. Two writers of one key at the same moment may note each other's state wrongly; the stale list
//! then shows a state that was there a moment before or after, which is as stale as was asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ListResult, ObjectMeta};

/// How many writes are remembered. Older ones are taken for settled.
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

    /// The list as it was at `cutoff`, or before all remembered writes, of what lies under `prefix` and after `offset`.
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

/// Folds a full list into one level, as a list with a delimiter shows it.
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
