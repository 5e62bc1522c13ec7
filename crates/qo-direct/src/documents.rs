//! Documents: one small object each, changed by compare-and-swap.
//!
//! | step of a change | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | swap the object, or create it; the body names the tasks that are submitted next | a document that names tasks; its next reader submits them again |
//! | 2 | submit these tasks, whose ids the caller chose | the same: a repeated submit returns the first task |
//! | 3 | swap the object again, without the names | nothing |
//!
//! Without tasks there is only step 1. A process that was suspended between 1 and 2 reads the document again before it submits: somebody
//! else may have taken over, and the tasks may be finished and purged since. A removed document stays as an object without a body, because
//! stores cannot delete under a condition.
//!
//! | operation | PUT | GET | LIST |
//! | --- | --- | --- | --- |
//! | read all of a kind | | 1 per document that has changed since | 1 per 1,000 |
//! | read all, from the cache | | | none until the signal announces a change, or ten minutes have passed |
//! | change | 1; 2 with tasks, and those of the submits | 0 if this process has read the version | 1 if the document is new |

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::document::{DOCUMENTS_MAX, DocumentChange, DocumentOutcome};
use qo_core::keys::{document_key, document_of, documents_prefix};
use qo_core::limit::StartWindow;
use qo_core::transition::submit;
use qo_core::{DocumentId, DocumentKind, DocumentName, Json, OpId, StoredDocument};
use qo_engine::EngineError;
use qo_engine::api::{
    Document, DocumentQuery, DocumentWrite, SubmitRequest, document_error, too_many_documents,
};
use qo_store::StoreError;
use qo_store::client::{Object, PAGE_LIMIT_MAX, Tag};
use qo_store::runtime::RuntimeExt;

use super::change::in_doubt;
use super::signal_record::settings_topic;
use super::submit::Admission;
use super::{DirectEngine, lock};

/// How often a change is tried.
const TRIES_MAX: u32 = 8;
/// How many documents are read concurrently.
const READ_CONCURRENCY: usize = 32;
/// How long a cached list is used without a signal: the process that changed a document may have died before it wrote the signal.
const CACHE_FALLBACK: Duration = Duration::from_mins(10);
/// How long a process trusts that nobody else submits the tasks of its change.
const SUBMIT_TRUST: Duration = Duration::from_secs(15);
/// The most objects of a kind, removed documents included.
const OBJECTS_MAX: usize = 10 * DOCUMENTS_MAX;

/// The documents that this process has read.
#[derive(Default)]
pub(super) struct Documents {
    cache: Mutex<DocumentCache>,
}

#[derive(Default)]
struct DocumentCache {
    /// When all documents of a kind were last read, and at which signal epoch.
    listed: BTreeMap<DocumentKind, (Duration, u64)>,
    documents: BTreeMap<DocumentId, CachedDocument>,
}

#[derive(Clone)]
struct CachedDocument {
    stored: StoredDocument,
    tag: Tag,
}

/// What all documents of a kind say together, such as the limits, as this process last parsed them.
#[derive(Default)]
pub(super) struct ParsedDocuments<R> {
    versions: Vec<(DocumentName, OpId)>,
    pub(super) rules: Arc<R>,
}

impl<R> ParsedDocuments<R> {
    /// Parses the documents, unless none of them has changed since the last time. Returns whether any has. Leaves out those that are invalid.
    pub(super) fn update<T, E: Display>(
        &mut self,
        documents: Vec<Document>,
        parse: impl Fn(&Json) -> Result<T, E>,
    ) -> bool
    where
        R: FromIterator<(DocumentName, T)>,
    {
        let versions: Vec<_> = (documents.iter())
            .map(|document| (document.id.name.clone(), document.version))
            .collect();
        if self.versions == versions {
            return false;
        }
        let parsed = documents.into_iter().filter_map(|document| {
            match parse(&document.body) {
                Ok(parsed) => Some((document.id.name, parsed)),
                Err(error) => {
                    tracing::warn!(kind = %document.id.kind, name = %document.id.name, %error, "ignoring an invalid document");
                    None
                }
            }
        });
        self.rules = Arc::new(parsed.collect());
        self.versions = versions;
        true
    }
}

impl DirectEngine {
    /// All documents of a kind, from the cache as long as the signal announces no change.
    pub(super) async fn cached_documents(
        &self,
        kind: DocumentKind,
    ) -> Result<Vec<Document>, EngineError> {
        let query = DocumentQuery {
            cached: true,
            ..DocumentQuery::all(kind)
        };
        self.read_documents(&query).await
    }

    pub(super) async fn read_documents(
        &self,
        query: &DocumentQuery,
    ) -> Result<Vec<Document>, EngineError> {
        if let Some(name) = &query.name {
            let id = DocumentId {
                kind: query.kind,
                name: name.clone(),
            };
            let read = self.read_document(&id).await?;
            let document = read.and_then(|cached| Document::of(id, &cached.stored));
            return Ok(document.into_iter().collect());
        }
        if !(query.cached && self.is_list_fresh(query.kind)) {
            self.list_documents(query.kind).await?;
        }
        let cache = lock(&self.shared.documents.cache);
        let cached = cache.documents.iter();
        Ok(cached
            .filter(|(id, _)| id.kind == query.kind)
            .filter_map(|(id, cached)| Document::of(id.clone(), &cached.stored))
            .collect())
    }

    pub(super) fn is_list_fresh(&self, kind: DocumentKind) -> bool {
        let epoch = self.shared.signal.epoch_of(settings_topic(kind));
        let at = self.runtime().monotonic();
        let listed = lock(&self.shared.documents.cache)
            .listed
            .get(&kind)
            .copied();
        listed.is_some_and(|(listed_at, listed_epoch)| {
            listed_epoch == epoch && at < listed_at + CACHE_FALLBACK
        })
    }

    /// Updates the cache to what is stored. Reads only objects that have changed.
    async fn list_documents(&self, kind: DocumentKind) -> Result<(), EngineError> {
        let epoch = self.shared.signal.epoch_of(settings_topic(kind));
        let at = self.runtime().monotonic();
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self
                .client()
                .page(&documents_prefix(kind), after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            let entries = page.entries.into_iter();
            found.extend(entries.filter_map(|entry| Some((document_of(&entry.key)?, entry.tag))));
            after = page.next;
            if after.is_none() || found.len() >= OBJECTS_MAX {
                break;
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let changed: Vec<DocumentId> = {
            let cache = lock(&self.shared.documents.cache);
            let is_found = |id: &DocumentId| found.binary_search_by(|(one, _)| one.cmp(id)).is_ok();
            // Removed documents are listed, too, so a document that is known and not listed is read: the list may be stale.
            let unlisted = (cache.documents.keys()).filter(|id| id.kind == kind && !is_found(id));
            let is_known = |id: &DocumentId, tag: &Tag| {
                let cached = cache.documents.get(id);
                cached.is_some_and(|cached| cached.tag.matches(tag))
            };
            let unknown = found.iter().filter(|(id, tag)| !is_known(id, tag));
            let unknown = unknown.map(|(id, _)| id.clone());
            unknown.chain(unlisted.cloned()).collect()
        };
        let mut reads = futures_util::stream::iter(changed)
            .map(|id| async move { self.read_document(&id).await })
            .buffered(READ_CONCURRENCY);
        while let Some(read) = reads.next().await {
            match read {
                Ok(_) => {}
                Err(error @ EngineError::Store(StoreError::Corrupt { .. })) => {
                    tracing::warn!(%error, "skipping an unreadable document");
                }
                Err(error) => return Err(error),
            }
        }
        lock(&self.shared.documents.cache)
            .listed
            .insert(kind, (at, epoch));
        Ok(())
    }

    /// Reads a document, and remembers it. A removed one is returned without a body.
    async fn read_document(&self, id: &DocumentId) -> Result<Option<CachedDocument>, EngineError> {
        let object = match self.client().get(&document_key(id)).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => {
                lock(&self.shared.documents.cache).documents.remove(id);
                return Ok(None);
            }
            // The body ended early, several times. The document itself may be intact, and a list without it would hide a limit.
            Err(StoreError::Corrupt { key, detail }) => {
                return Err(EngineError::Store(StoreError::Unavailable {
                    key,
                    detail,
                    attempts: 1,
                    elapsed: Duration::ZERO,
                    in_doubt: false,
                }));
            }
            Err(error) => return Err(error.into()),
        };
        let cached = CachedDocument {
            stored: decode(id, &object)?,
            tag: object.tag,
        };
        self.remember(id, cached.clone());
        Ok(Some(cached))
    }

    pub(super) async fn change_document(
        &self,
        write: DocumentWrite,
    ) -> Result<Option<Document>, EngineError> {
        write.validate()?;
        if write.submits.is_empty() {
            let written = self
                .swap_document(&write.id, &write.settled_change())
                .await?;
            return Ok(Document::of(write.id, &written));
        }
        self.check_submits(&write.submits)?;
        let began = self.runtime().monotonic();
        let written = self.swap_document(&write.id, &write.first_change()).await?;
        if written.op_id != write.op {
            // The change was made before, and somebody has built upon it: the tasks are submitted, or somebody else submits them.
            return Ok(Document::of(write.id, &written));
        }
        if self.runtime().monotonic().saturating_sub(began) > SUBMIT_TRUST {
            let current = self.read_document(&write.id).await.map_err(in_doubt)?;
            if current.is_none_or(|current| current.stored.op_id != write.op) {
                return Err(EngineError::DocumentConflict { id: write.id });
            }
        }
        self.submit_with_document(write.submits).await?;
        let Some(settled) = write.settled else {
            return Ok(Document::of(write.id, &written));
        };
        let settle = DocumentChange {
            expected: Some(write.op),
            body: Some(settled),
            op: self.runtime().new_op_id(),
        };
        // The tasks are submitted. If this write fails, the next reader submits them again, finds them, and writes this.
        let written = match self.swap_document(&write.id, &settle).await {
            Ok(settled) => settled,
            Err(error) => {
                tracing::debug!(document = %write.id, %error, "the document still names tasks that are submitted");
                written
            }
        };
        Ok(Document::of(write.id, &written))
    }

    /// Refuses tasks that would be refused, before anything is written.
    fn check_submits(&self, submits: &[SubmitRequest]) -> Result<(), EngineError> {
        let now = self.client().now();
        for request in submits {
            let (id, op) = (self.new_task_id(), self.runtime().new_op_id());
            let input = self.place_input(&request.input)?;
            submit(request.clone().into_submission(id, input, now), op, now)?;
        }
        Ok(())
    }

    async fn submit_with_document(&self, submits: Vec<SubmitRequest>) -> Result<(), EngineError> {
        for result in self.submit_all(submits, Admission::Exempt).await {
            result.map_err(in_doubt)?;
        }
        Ok(())
    }

    /// Makes one change of a document durable, and returns the document.
    async fn swap_document(
        &self,
        id: &DocumentId,
        change: &DocumentChange,
    ) -> Result<StoredDocument, EngineError> {
        let mut known = self.cached_version(id, change.expected);
        for round in 0..TRIES_MAX {
            let current = match known.take() {
                Some(cached) => Some(cached),
                None => match self.read_document(id).await {
                    Ok(read) => read,
                    Err(error) if round == 0 => return Err(error),
                    // The last write may have been applied: see `change`.
                    Err(error) => return Err(in_doubt(error)),
                },
            };
            let stored = current.as_ref().map(|current| &current.stored);
            let now = self.client().now();
            let outcome = StoredDocument::change(stored, change.clone(), now);
            let next = match outcome.map_err(|rejection| document_error(id, rejection))? {
                DocumentOutcome::Write(next) => *next,
                DocumentOutcome::Unchanged => {
                    return Ok(current.map_or_else(|| removed(change.op, now), |it| it.stored));
                }
            };
            if stored.is_none_or(|stored| stored.body.is_none()) {
                self.check_number(id.kind).await?;
            }
            let body = encode(id, &next)?;
            let key = document_key(id);
            let written = match &current {
                Some(current) => {
                    let swap = self.client().swap(&key, body, &current.tag, &change.op);
                    swap.await
                }
                None => self.client().create(&key, body, &change.op).await,
            };
            match written {
                Ok(written) => {
                    match written.tag() {
                        Some(tag) => self.remember(
                            id,
                            CachedDocument {
                                stored: next.clone(),
                                tag: tag.clone(),
                            },
                        ),
                        // Somebody has built upon it since.
                        None => self.forget_document(id),
                    }
                    if id.kind == DocumentKind::Queues {
                        self.settings_changed(id);
                    } else {
                        self.shared.signal.touch_known(settings_topic(id.kind), 1);
                    }
                    return Ok(next);
                }
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {}
                Err(error) => {
                    self.forget_document(id);
                    self.settings_changed(id);
                    return Err(error.into());
                }
            }
        }
        Err(EngineError::DocumentConflict { id: id.clone() })
    }

    /// Refuses a new document if there are too many.
    async fn check_number(&self, kind: DocumentKind) -> Result<(), EngineError> {
        self.list_documents(kind).await?;
        let cache = lock(&self.shared.documents.cache);
        let of_kind = cache.documents.iter().filter(|(id, _)| id.kind == kind);
        let (mut live, mut objects) = (0, 0);
        for (_, cached) in of_kind {
            objects += 1;
            live += usize::from(cached.stored.body.is_some());
        }
        if live >= kind.documents_max() || objects >= OBJECTS_MAX {
            return Err(too_many_documents(kind));
        }
        Ok(())
    }

    fn cached_version(&self, id: &DocumentId, version: Option<OpId>) -> Option<CachedDocument> {
        let version = version?;
        let cache = lock(&self.shared.documents.cache);
        let cached = cache.documents.get(id).cloned();
        cached.filter(|cached| cached.stored.op_id == version)
    }

    fn remember(&self, id: &DocumentId, cached: CachedDocument) {
        let mut cache = lock(&self.shared.documents.cache);
        // A slow read must not replace what this process has written meanwhile.
        let is_older = |known: &CachedDocument| known.stored.revision > cached.stored.revision;
        if !cache.documents.get(id).is_some_and(is_older) {
            cache.documents.insert(id.clone(), cached);
        }
    }

    /// Forgets a document whose stored state this process no longer knows. The cached list lacks it from now on, so it is not used
    /// again: a schedule or a setting must not disappear because one write was in doubt.
    fn forget_document(&self, id: &DocumentId) {
        let mut cache = lock(&self.shared.documents.cache);
        cache.documents.remove(id);
        cache.listed.remove(&id.kind);
    }
}

/// What is returned for a document that does not exist and was to be removed.
fn removed(op: OpId, now: qo_core::Timestamp) -> StoredDocument {
    StoredDocument {
        starts: StartWindow::default(),
        revision: 0,
        op_id: op,
        recent_ops: Vec::new(),
        updated_at: now,
        body: None,
        extra: qo_core::extra::Extra::NONE,
    }
}

fn decode(id: &DocumentId, object: &Object) -> Result<StoredDocument, EngineError> {
    serde_json::from_slice(&object.body).map_err(|error| corrupt(id, &error))
}

fn encode(id: &DocumentId, stored: &StoredDocument) -> Result<Bytes, EngineError> {
    let body = serde_json::to_vec(stored).map_err(|error| corrupt(id, &error))?;
    Ok(Bytes::from(body))
}

fn corrupt(id: &DocumentId, error: &serde_json::Error) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: document_key(id),
        detail: error.to_string(),
    })
}
