//! A bucket in memory that holds more tasks than memory does.
//!
//! A million pending and ten million finished tasks are computed when a request asks for them. What is written or deleted is stored on top.
//! A list costs as much time as the page that it returns, not as much as the prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Attributes, Error, Extensions, GetOptions, GetResult, GetResultPayload, ListResult, ObjectMeta,
    ObjectStore, PutMode, PutOptions, PutPayload, PutResult, Result,
};
use qo_core::Timestamp;
use qo_fixtures::{LayeredStore, StoreLayer};
use qo_store::runtime::Runtime;

use crate::virtual_tasks::VirtualTasks;

/// How many objects a list computes at a time.
const CHUNK: usize = 1_000;

#[derive(Debug, Clone)]
struct Stored {
    body: Bytes,
    tag: String,
    at: Timestamp,
}

#[derive(Debug, Default)]
struct Objects {
    stored: BTreeMap<String, Stored>,
    /// Virtual objects that were deleted.
    deleted: BTreeSet<String>,
    writes: u64,
}

#[derive(Debug)]
pub(crate) struct FleetLayer {
    state: Arc<State>,
    /// For requests that direct mode never sends.
    inner: InMemory,
}

#[derive(Debug)]
struct State {
    objects: Mutex<Objects>,
    runtime: Arc<dyn Runtime>,
    tasks: VirtualTasks,
}

pub(crate) fn bucket(runtime: Arc<dyn Runtime>, tasks: VirtualTasks) -> Arc<dyn ObjectStore> {
    Arc::new(LayeredStore(FleetLayer {
        state: Arc::new(State {
            objects: Mutex::default(),
            runtime,
            tasks,
        }),
        inner: InMemory::new(),
    }))
}

impl State {
    fn find(&self, objects: &Objects, key: &str) -> Option<Stored> {
        if let Some(stored) = objects.stored.get(key) {
            return Some(stored.clone());
        }
        if objects.deleted.contains(key) {
            return None;
        }
        let (body, at) = self.tasks.read(key)?;
        Some(Stored {
            body,
            tag: "\"virtual\"".to_owned(),
            at,
        })
    }

    /// The objects of a prefix after a key, at most a chunk.
    fn chunk(&self, prefix: &str, after: &str) -> Vec<ObjectMeta> {
        let objects = self.objects.lock().unwrap();
        let mut found: BTreeMap<String, (u64, String, Timestamp)> = BTreeMap::new();
        let from = Bound::Excluded(after.to_owned());
        let range = objects.stored.range((from, Bound::Unbounded));
        for (key, stored) in range
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(CHUNK)
        {
            let size = stored.body.len() as u64;
            found.insert(key.clone(), (size, stored.tag.clone(), stored.at));
        }
        let virtual_keys = self.tasks.keys_after(prefix, after);
        let kept = virtual_keys
            .filter(|(key, _)| !objects.deleted.contains(key) && !objects.stored.contains_key(key));
        for (key, at) in kept.take(CHUNK) {
            found.insert(key, (0, "\"virtual\"".to_owned(), at));
        }
        let listed = found.into_iter().take(CHUNK);
        listed
            .map(|(key, (size, tag, at))| meta(&key, size, tag, at))
            .collect()
    }
}

fn meta(key: &str, size: u64, tag: String, at: Timestamp) -> ObjectMeta {
    let since_1970 = Duration::from_millis(at.as_millis().unsigned_abs());
    ObjectMeta {
        location: Path::from(key),
        last_modified: (UNIX_EPOCH + since_1970).into(),
        size,
        e_tag: Some(tag),
        version: None,
    }
}

fn folder(prefix: Option<&Path>) -> String {
    prefix.map_or_else(String::new, |prefix| format!("{prefix}/"))
}

#[async_trait::async_trait]
impl StoreLayer for FleetLayer {
    fn inner(&self) -> &dyn ObjectStore {
        &self.inner
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let mut objects = self.state.objects.lock().unwrap();
        let key = path.to_string();
        let current = self.state.find(&objects, &key);
        match &opts.mode {
            PutMode::Overwrite => {}
            PutMode::Create if current.is_none() => {}
            PutMode::Create => {
                return Err(Error::AlreadyExists {
                    path: key,
                    source: "it exists".into(),
                });
            }
            PutMode::Update(expected) => {
                if current.map(|current| current.tag) != expected.e_tag {
                    return Err(Error::Precondition {
                        path: key,
                        source: "another tag".into(),
                    });
                }
            }
        }
        objects.writes += 1;
        let tag = format!("\"{}\"", objects.writes);
        let stored = Stored {
            body: body.into(),
            tag: tag.clone(),
            at: self.state.runtime.now(),
        };
        objects.stored.insert(key, stored);
        Ok(PutResult {
            e_tag: Some(tag),
            version: None,
            extensions: Extensions::default(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = location.to_string();
        let found = {
            let objects = self.state.objects.lock().unwrap();
            self.state.find(&objects, &key)
        };
        let Some(stored) = found else {
            return Err(Error::NotFound {
                path: key,
                source: "no such object".into(),
            });
        };
        let meta = meta(&key, stored.body.len() as u64, stored.tag, stored.at);
        options.check_preconditions(&meta)?;
        let range = 0..meta.size;
        let body = futures_util::stream::once(std::future::ready(Ok(stored.body)));
        Ok(GetResult {
            payload: GetResultPayload::Stream(body.boxed()),
            meta,
            range,
            attributes: Attributes::new(),
            extensions: Extensions::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let state = Arc::clone(&self.state);
        locations
            .map(move |location| {
                let location = location?;
                let mut objects = state.objects.lock().unwrap();
                let key = location.to_string();
                objects.stored.remove(&key);
                if state.tasks.read(&key).is_some() {
                    objects.deleted.insert(key);
                }
                Ok(location)
            })
            .boxed()
    }

    fn list(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let state = Arc::clone(&self.state);
        let prefix = folder(prefix);
        let offset = offset.map_or_else(String::new, ToString::to_string);
        let after = offset.max(prefix.clone());
        futures_util::stream::unfold(Some(after), move |after| {
            let page = after.map(|after| state.chunk(&prefix, &after));
            async move {
                let page = page?;
                let next = page.last().filter(|_| page.len() == CHUNK);
                let next = next.map(|last| last.location.to_string());
                Some((futures_util::stream::iter(page.into_iter().map(Ok)), next))
            }
        })
        .flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = folder(prefix);
        let mut folders = Vec::new();
        let mut objects = Vec::new();
        let mut after = prefix.clone();
        while let Some(next) = self.state.chunk(&prefix, &after).into_iter().next() {
            let key = next.location.to_string();
            match key[prefix.len()..].split_once('/') {
                None => {
                    after = key;
                    objects.push(next);
                }
                Some((name, _)) => {
                    folders.push(Path::from(format!("{prefix}{name}")));
                    // The first character after the slash.
                    after = format!("{prefix}{name}0");
                }
            }
        }
        Ok(ListResult {
            common_prefixes: folders,
            objects,
            extensions: Extensions::default(),
        })
    }
}
