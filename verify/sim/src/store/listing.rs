//! Lists of objects, and of the versions that a store keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{Duration, UNIX_EPOCH};

use object_store::path::Path;
use object_store::{Extensions, ListResult, ObjectMeta};
use qo_store::wrap::version_keys::VERSIONS_PREFIX;

use super::bucket::{Object, State};

/// Whether a list is one of versions.
pub(super) fn is_of_versions(prefix: Option<&Path>) -> bool {
    prefix.is_some_and(|prefix| prefix.as_ref().starts_with(VERSIONS_PREFIX))
}

pub(super) fn meta(key: &str, object: &Object) -> ObjectMeta {
    let since_1970 = Duration::from_millis(object.at.as_millis().unsigned_abs());
    ObjectMeta {
        location: Path::from(key),
        last_modified: (UNIX_EPOCH + since_1970).into(),
        size: object.body.len() as u64,
        e_tag: Some(object.e_tag.clone()),
        version: None,
    }
}

/// The part of a map that a list covers.
pub(super) fn bounded<'a, T>(
    map: &'a BTreeMap<String, T>,
    prefix: Option<&Path>,
    offset: Option<&Path>,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    let folder = prefix.map_or_else(String::new, |prefix| format!("{prefix}/"));
    let from = match offset {
        Some(offset) if offset.as_ref() >= folder.as_str() => {
            Bound::Excluded(offset.as_ref().to_owned())
        }
        _ => Bound::Included(folder.clone()),
    };
    map.range((from, Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(&folder))
}

pub(super) fn list(state: &State, prefix: Option<&Path>, offset: Option<&Path>) -> Vec<ObjectMeta> {
    if is_of_versions(prefix) {
        return list_versions(state, prefix, offset);
    }
    bounded(&state.objects, prefix, offset)
        .map(|(key, object)| meta(key, object))
        .collect()
}

/// Folds a list into one level.
pub(super) fn folders(prefix: Option<&Path>, entries: Vec<ObjectMeta>) -> ListResult {
    let root = Path::default();
    let prefix = prefix.unwrap_or(&root);
    let mut names = BTreeSet::new();
    let mut objects = Vec::new();
    for meta in entries {
        let child = meta.location.prefix_match(prefix).and_then(|mut parts| {
            let child = parts.next()?;
            parts.next().map(|_| prefix.clone().join(child))
        });
        match child {
            Some(child) => {
                names.insert(child);
            }
            None => objects.push(meta),
        }
    }
    ListResult {
        common_prefixes: names.into_iter().collect(),
        objects,
        extensions: Extensions::default(),
    }
}

/// The versions below a prefix, as objects.
fn list_versions(state: &State, prefix: Option<&Path>, offset: Option<&Path>) -> Vec<ObjectMeta> {
    let kept = state.versions.iter().flatten().flat_map(|(_, kept)| kept);
    let all: BTreeMap<String, &Option<Object>> = kept
        .map(|(version, object)| (version.to_key(), object))
        .collect();
    bounded(&all, prefix, offset)
        .map(|(key, object)| match object {
            Some(object) => meta(key, object),
            None => ObjectMeta {
                location: Path::from(key.as_str()),
                last_modified: UNIX_EPOCH.into(),
                size: 0,
                e_tag: None,
                version: None,
            },
        })
        .collect()
}
