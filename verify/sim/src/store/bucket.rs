//! The store: objects in memory, in virtual time, with their complete history.
//!
//! Every request is one step: conditions are checked at the moment at which it is applied, as on a correct store. The
//! [link](super::Link) adds the faults.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    Attributes, Error, Extensions, GetOptions, GetResult, GetResultPayload, ObjectMeta, PutMode,
    PutResult, Result,
};
use qo_check::StoredVersion;
use qo_core::Timestamp;
use qo_store::wrap::Operation;
use qo_store::wrap::version_keys::VersionKey;

use super::answers::status;
use super::listing::{bounded, folders, is_of_versions, list, meta};
use super::request::{Request, StoreReply};
use crate::sched::{Scheduler, lock};

/// The properties of a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct BucketSettings {
    /// Entity tags are hashes of the content, so equal bytes have equal tags. Otherwise every tag is unique.
    pub hashes_content: bool,
    /// The most writes of a key.
    pub versions_max: Option<u32>,
    /// The key that this does not limit.
    pub unlimited_key: Option<&'static str>,
    /// Whether it keeps versions. They are objects, see [`qo_store::wrap::version_keys`].
    pub keeps_versions: bool,
}

/// The number of requests, by kind.
pub type Counts = BTreeMap<Operation, u64>;

/// The store.
#[derive(Debug)]
pub struct Bucket {
    scheduler: Scheduler,
    settings: BucketSettings,
    state: Mutex<State>,
    understood: Mutex<BTreeMap<String, Understood>>,
}

/// The kept versions of one object, oldest first. A delete marker has no object.
type KeptVersions = Vec<(VersionKey, Option<Object>)>;

/// A decoded object.
type Understood = Arc<dyn Any + Send + Sync>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) objects: BTreeMap<String, Object>,
    history: BTreeMap<String, Vec<Change>>,
    tags: u64,
    counts: Counts,
    /// Keys whose writes were refused because they have too many versions.
    full: BTreeSet<String>,
    changes: u64,
    /// The kept versions of each object, if the store keeps versions.
    pub(super) versions: Option<BTreeMap<String, KeptVersions>>,
}

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) body: Bytes,
    pub(super) e_tag: String,
    pub(super) at: Timestamp,
    attributes: Attributes,
}

#[derive(Debug)]
struct Change {
    tick: u64,
    at: Timestamp,
    object: Option<Object>,
    damaged: bool,
}

impl Change {
    fn new(object: Option<Object>, at: Timestamp, tick: u64) -> Self {
        Self {
            tick,
            at,
            object,
            damaged: false,
        }
    }
}

impl Bucket {
    /// An empty store.
    pub fn new(scheduler: &Scheduler, settings: BucketSettings) -> Self {
        Self {
            scheduler: scheduler.clone(),
            settings,
            state: Mutex::new(State {
                versions: settings.keeps_versions.then(BTreeMap::new),
                ..State::default()
            }),
            understood: Mutex::default(),
        }
    }

    /// The decoded form of an object that never changes. It is decoded once.
    pub fn understand<T: Send + Sync + 'static>(
        &self,
        key: &str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let known = lock(&self.understood).get(key).cloned();
        if let Some(Ok(known)) = known.map(Arc::downcast) {
            return known;
        }
        let made = Arc::new(make());
        lock(&self.understood).insert(key.to_owned(), Arc::clone(&made) as Understood);
        made
    }

    /// Applies a request.
    pub fn apply(&self, request: &Request) -> Result<StoreReply> {
        let tick = self.scheduler.tick();
        let at = self.scheduler.true_now();
        let mut state = lock(&self.state);
        *state.counts.entry(request.operation()).or_default() += 1;
        match request {
            Request::Put {
                key,
                body,
                mode,
                attributes,
            } => {
                let object = Object {
                    body: body.clone(),
                    e_tag: String::new(),
                    at,
                    attributes: attributes.clone(),
                };
                let written = self.put(&mut state, key, object, mode, tick)?;
                Ok(StoreReply::Put(written))
            }
            Request::Get { key, options } => get(&state, key, options).map(StoreReply::Get),
            Request::List { prefix, offset } => {
                let found = list(&state, prefix.as_ref(), offset.as_ref());
                Ok(StoreReply::List(found))
            }
            Request::Folders { prefix } => Ok(StoreReply::Folders(folders(
                prefix.as_ref(),
                list(&state, prefix.as_ref(), None),
            ))),
            Request::Delete { keys } => {
                for key in keys {
                    match VersionKey::parse(key.as_ref()) {
                        Some(version) => state.delete_version(&version, at, tick),
                        None => state.write(key.as_ref(), Change::new(None, at, tick)),
                    }
                }
                Ok(StoreReply::Deleted)
            }
        }
    }

    /// An earlier list: without recent writes, with recently deleted objects.
    pub fn stale_list(&self, request: &Request, stale_by: Duration) -> StoreReply {
        let stale_ms = u64::try_from(stale_by.as_millis()).unwrap_or(u64::MAX);
        let then = self.scheduler.true_now().minus_millis(stale_ms);
        let mut state = lock(&self.state);
        *state.counts.entry(request.operation()).or_default() += 1;
        let (prefix, offset) = match request {
            Request::List { prefix, offset } if is_of_versions(prefix.as_ref()) => {
                return StoreReply::List(list(&state, prefix.as_ref(), offset.as_ref()));
            }
            Request::List { prefix, offset } => (prefix.as_ref(), offset.as_ref()),
            Request::Folders { prefix } => (prefix.as_ref(), None),
            Request::Put { .. } | Request::Get { .. } | Request::Delete { .. } => (None, None),
        };
        let found = bounded(&state.history, prefix, offset)
            .filter_map(|(key, changes)| {
                let change = changes.iter().rev().find(|change| change.at <= then)?;
                Some(meta(key, change.object.as_ref()?))
            })
            .collect();
        match request {
            Request::Folders { .. } => StoreReply::Folders(folders(prefix, found)),
            _ => StoreReply::List(found),
        }
    }

    /// Damages the bytes of an object. Returns whether it exists.
    pub fn damage(&self, key: &str) -> bool {
        let tick = self.scheduler.tick();
        let mut state = lock(&self.state);
        let Some(object) = state.objects.get(key) else {
            return false;
        };
        let kept = object.body.len() / 2;
        let mut body = object.body[..kept].to_vec();
        body.extend_from_slice(b"\0damaged");
        let body = Bytes::from(body);
        let at = object.at;
        let damaged = Object {
            attributes: object.attributes.clone(),
            e_tag: state.tag(self.settings, &body),
            body,
            at,
        };
        let change = Change {
            damaged: true,
            ..Change::new(Some(damaged), at, tick)
        };
        state.write(key, change);
        true
    }

    /// All keys below a prefix, in order.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let state = lock(&self.state);
        let from = state.objects.range(prefix.to_owned()..);
        from.take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// The bytes of an object.
    pub fn body(&self, key: &str) -> Option<Bytes> {
        let state = lock(&self.state);
        state.objects.get(key).map(|object| object.body.clone())
    }

    /// The keys below a prefix of which only versions are left.
    pub fn deleted_with_versions(&self, prefix: &str) -> Vec<String> {
        let state = lock(&self.state);
        let versions = state.versions.iter().flatten();
        versions
            .filter(|(key, versions)| {
                key.starts_with(prefix) && !state.objects.contains_key(*key) && !versions.is_empty()
            })
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// The history of all keys below a prefix.
    pub fn history(&self, prefix: &str) -> BTreeMap<String, Vec<StoredVersion>> {
        let state = lock(&self.state);
        let from = state.history.range(prefix.to_owned()..);
        from.take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, changes)| {
                let written = changes.iter().map(|change| StoredVersion {
                    at: change.at,
                    tick: change.tick,
                    body: change.object.as_ref().map(|object| object.body.clone()),
                    damaged: change.damaged,
                });
                (key.clone(), written.collect())
            })
            .collect()
    }

    /// The number of requests, by kind.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts.clone()
    }

    /// The number of changes.
    pub fn changes(&self) -> u64 {
        lock(&self.state).changes
    }

    /// The keys whose writes were refused because they have too many versions.
    pub fn full_keys(&self) -> BTreeSet<String> {
        lock(&self.state).full.clone()
    }

    /// A hash of everything that is stored.
    pub fn digest(&self) -> u64 {
        let state = lock(&self.state);
        let mut hasher = DefaultHasher::new();
        for (key, object) in &state.objects {
            (key, &object.body, &object.e_tag, object.at.as_millis()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn put(
        &self,
        state: &mut State,
        key: &Path,
        mut object: Object,
        mode: &PutMode,
        tick: u64,
    ) -> Result<PutResult> {
        let found = state.objects.get(key.as_ref());
        match (mode, found) {
            (PutMode::Overwrite, _) | (PutMode::Create, None) => {}
            (PutMode::Create, Some(_)) => {
                return Err(Error::AlreadyExists {
                    path: key.to_string(),
                    source: "there is an object already".into(),
                });
            }
            (PutMode::Update(expected), Some(found))
                if expected.e_tag.as_deref() == Some(&*found.e_tag) => {}
            (PutMode::Update(_), _) => {
                return Err(Error::Precondition {
                    path: key.to_string(),
                    source: "the object is not the expected one".into(),
                });
            }
        }
        let versions = state.history.get(key.as_ref()).map_or(0, Vec::len);
        if self
            .settings
            .versions_max
            .is_some_and(|max| versions >= max as usize)
            && self.settings.unlimited_key != Some(key.as_ref())
        {
            state.full.insert(key.to_string());
            return Err(status(400, "MaxVersionsExceeded"));
        }
        let e_tag = state.tag(self.settings, &object.body);
        object.e_tag.clone_from(&e_tag);
        let at = object.at;
        state.write(key.as_ref(), Change::new(Some(object), at, tick));
        Ok(PutResult {
            e_tag: Some(e_tag),
            version: None,
            extensions: Extensions::default(),
        })
    }
}

impl State {
    fn tag(&mut self, settings: BucketSettings, body: &Bytes) -> String {
        self.tags += 1;
        if !settings.hashes_content {
            return format!("\"{}\"", self.tags);
        }
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    fn write(&mut self, key: &str, change: Change) {
        let object = &change.object;
        let exists = object.is_some() || self.objects.contains_key(key);
        if let Some(versions) = &mut self.versions
            && exists
        {
            self.tags += 1;
            let version = VersionKey {
                key: key.to_owned(),
                number: self.tags,
                is_delete_marker: object.is_none(),
            };
            let kept = versions.entry(key.to_owned()).or_default();
            kept.push((version, object.clone()));
        }
        self.replace(key, change);
    }

    /// Removes a version. If it was the newest, the one before it becomes current.
    fn delete_version(&mut self, version: &VersionKey, at: Timestamp, tick: u64) {
        let Some(kept) = (self.versions.as_mut()).and_then(|all| all.get_mut(&version.key)) else {
            return;
        };
        let is_newest = kept.last().is_some_and(|(newest, _)| newest == version);
        kept.retain(|(kept, _)| kept != version);
        if is_newest {
            let uncovered = kept.last().and_then(|(_, object)| object.clone());
            self.replace(&version.key, Change::new(uncovered, at, tick));
        }
    }

    /// Makes an object current.
    fn replace(&mut self, key: &str, change: Change) {
        let was_there = match &change.object {
            Some(object) => {
                self.objects.insert(key.to_owned(), object.clone());
                true
            }
            None => self.objects.remove(key).is_some(),
        };
        if was_there {
            self.changes += 1;
            self.history.entry(key.to_owned()).or_default().push(change);
        }
    }
}

/// The version of that key.
fn version_at<'a>(state: &'a State, key: &str) -> Option<&'a Object> {
    let wanted = VersionKey::parse(key)?;
    let kept = state.versions.as_ref()?.get(&wanted.key)?;
    let found = kept.iter().find(|(version, _)| *version == wanted);
    found?.1.as_ref()
}

fn get(state: &State, key: &Path, options: &GetOptions) -> Result<GetResult> {
    let current = state.objects.get(key.as_ref());
    let Some(object) = current.or_else(|| version_at(state, key.as_ref())) else {
        return Err(Error::NotFound {
            path: key.to_string(),
            source: "there is no such object".into(),
        });
    };
    let meta = meta(key.as_ref(), object);
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        None => 0..meta.size,
        Some(range) => range.as_range(meta.size).map_err(|error| Error::Generic {
            store: "sim",
            source: Box::new(error),
        })?,
    };
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    let attributes = object.attributes.clone();
    let body = object.body.slice(start..end);
    Ok(result_of(meta, body, range, attributes))
}

/// The reply to a read with this body.
pub(super) fn result_of(
    meta: ObjectMeta,
    body: Bytes,
    range: std::ops::Range<u64>,
    attributes: Attributes,
) -> GetResult {
    GetResult {
        payload: GetResultPayload::Stream(
            futures_util::stream::once(std::future::ready(Ok(body))).boxed(),
        ),
        meta,
        range,
        attributes,
        extensions: Extensions::default(),
    }
}
