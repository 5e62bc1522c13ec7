//! Reading and writing documents, such as schedules.

use qo_core::document::{DocumentChange, DocumentRejection};
use qo_core::{
    DocumentId, DocumentKind, DocumentName, Json, Limit, OpId, QueueSettings, StoredDocument,
    Timestamp, Webhook,
};

use super::SubmitRequest;
use crate::error::EngineError;

/// Which documents to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentQuery {
    /// Their kind.
    pub kind: DocumentKind,
    /// The name of one; all of the kind if absent.
    pub name: Option<DocumentName>,
    /// Whether the caller asks often and accepts what this process read before, as long as nothing tells that it has changed. A change is
    /// then noticed within minutes at the latest. Engines that hold documents in memory always return the newest.
    pub cached: bool,
}

impl DocumentQuery {
    /// All documents of a kind, as they are now.
    pub fn all(kind: DocumentKind) -> Self {
        Self {
            kind,
            name: None,
            cached: false,
        }
    }

    /// One document, as it is now.
    pub fn one(id: &DocumentId) -> Self {
        Self {
            kind: id.kind,
            name: Some(id.name.clone()),
            cached: false,
        }
    }
}

/// A document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its kind and name.
    pub id: DocumentId,
    /// Its version, which a change must name.
    pub version: OpId,
    /// How often it was written.
    pub revision: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// Its body, a JSON object.
    pub body: Json,
}

impl Document {
    /// The document of a stored record; `None` if it was removed.
    pub fn of(id: DocumentId, stored: &StoredDocument) -> Option<Self> {
        Some(Self {
            id,
            version: stored.op_id,
            revision: stored.revision,
            updated_at: stored.updated_at,
            body: stored.body.clone()?,
        })
    }
}

/// A change of a document, and the tasks that are submitted with it.
///
/// Engines with a commit loop make the change and the tasks durable together. Direct mode has three steps:
///
/// | step | what | a crash right after it leaves |
/// | --- | --- | --- |
/// | 1 | the document is written with `body` | a document that says which tasks it is about to submit; whoever reads it repeats the submits |
/// | 2 | the tasks are submitted, each with an id that the caller chose | the same; a repeated submit returns the first task |
/// | 3 | the document is written with `settled` | nothing |
///
/// So if tasks are submitted, `body` must name them, and `settled` must not.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentWrite {
    /// The document.
    pub id: DocumentId,
    /// The version that the change is based on; `None` if the document must not exist.
    pub expected: Option<OpId>,
    /// The new body, a JSON object; `None` to remove the document.
    pub body: Option<Json>,
    /// Identifies the change. A repeated change with the same id has no second effect.
    pub op: OpId,
    /// Tasks to submit. Each has an id, with the route of documents ([`qo_core::Route::DOCUMENTS`]), and no idempotency key.
    pub submits: Vec<SubmitRequest>,
    /// The body once the tasks are submitted; `body` if absent.
    pub settled: Option<Json>,
}

impl DocumentWrite {
    /// A change without tasks.
    pub fn new(id: DocumentId, expected: Option<OpId>, body: Option<Json>, op: OpId) -> Self {
        Self {
            id,
            expected,
            body,
            op,
            submits: Vec::new(),
            settled: None,
        }
    }

    /// Checks what the rules of documents do not: the submits, and the content of settings of queues, of limits and of webhooks, which
    /// engines follow themselves.
    pub fn validate(&self) -> Result<(), EngineError> {
        let fits = |request: &SubmitRequest| {
            request.idempotency.is_none()
                && request
                    .id
                    .is_some_and(|id| id.route() == qo_core::Route::DOCUMENTS)
        };
        if !self.submits.iter().all(fits) || (self.body.is_none() && !self.submits.is_empty()) {
            return Err(EngineError::BadRequest(
                "tasks that are submitted with a document need ids with the route of documents, and no idempotency key"
                    .to_owned(),
            ));
        }
        for body in self.body.iter().chain(&self.settled) {
            let name = &self.id.name;
            let invalid = match self.id.kind {
                DocumentKind::Queues => QueueSettings::parse(body)
                    .err()
                    .map(|error| format!("the settings of the queue {name} are invalid: {error}")),
                DocumentKind::Limits => Limit::parse(body)
                    .err()
                    .map(|error| format!("the limit {name} is invalid: {error}")),
                DocumentKind::Webhooks => Webhook::parse(body)
                    .err()
                    .map(|error| format!("the webhook {name} is invalid: {error}")),
                _ => None,
            };
            if let Some(text) = invalid {
                return Err(EngineError::BadRequest(text));
            }
        }
        Ok(())
    }

    /// The change to make when the tasks are submitted in the same commit.
    pub fn settled_change(&self) -> DocumentChange {
        DocumentChange {
            expected: self.expected,
            body: self.settled.clone().or_else(|| self.body.clone()),
            op: self.op,
        }
    }

    /// The change to make before the tasks are submitted.
    pub fn first_change(&self) -> DocumentChange {
        DocumentChange {
            expected: self.expected,
            body: self.body.clone(),
            op: self.op,
        }
    }
}

/// The error of a change that the rules of documents reject.
pub fn document_error(id: &DocumentId, rejection: DocumentRejection) -> EngineError {
    match rejection {
        DocumentRejection::Conflict => EngineError::DocumentConflict { id: id.clone() },
        other => EngineError::BadRequest(format!("the document {id} is invalid: {other}")),
    }
}

/// The error of a document that would be one too many.
pub fn too_many_documents(kind: DocumentKind) -> EngineError {
    EngineError::BadRequest(format!(
        "there are already {} {kind}, which is the maximum; remove one first",
        kind.documents_max()
    ))
}

/// A process's part in work that is done once for the whole queue, such as firing schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// This process does all of it: no other process has the queue.
    Sole,
    /// A few processes do it, and this is one of them. They must not rely on each other.
    Shared,
    /// Other processes do it. This one helps only with what is long overdue.
    Reserve,
    /// A server does it, or another node.
    None,
}
