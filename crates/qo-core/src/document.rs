//! Small named JSON documents that are kept next to the tasks: schedules, settings of queues, limits, webhooks.
//!
//! A document is changed by compare-and-swap: a change names the version that it is based on, and each write makes a new version. The
//! version is the operation id of the write, so a caller that lost a response recognises its own write, and a document that was removed
//! and created again never has an old version.
//!
//! ```text
//! read (version a) ──► change(expected a, operation b) ──► version b
//!                                └── somebody else wrote first ──► DocumentConflict: read again
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::extra::Extra;
use crate::id::OpId;
use crate::json::Json;
use crate::limit::StartWindow;
use crate::names::DocumentName;
use crate::time::Timestamp;
use crate::webhook::WEBHOOKS_MAX;

/// The maximum size of a document's body, in bytes.
pub const DOCUMENT_MAX_BYTES: usize = 32 * 1024;
/// The maximum number of documents of one kind. Of some kinds there may be fewer ([`DocumentKind::documents_max`]).
pub const DOCUMENTS_MAX: usize = 1_000;
/// How many earlier operations a document keeps, so that their authors recognise them.
const RECENT_OPS_MAX: usize = 16;

/// The kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DocumentKind {
    /// A schedule, which submits tasks at certain times.
    Schedules,
    /// The settings of a queue.
    Queues,
    /// A limit of concurrent tasks or starts.
    Limits,
    /// A webhook, which is notified when tasks end.
    Webhooks,
}

/// A text that is not a kind of documents.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a kind of settings: expected schedules, queues, limits or webhooks")]
pub struct UnknownDocumentKind {
    text: String,
}

impl DocumentKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Schedules, Self::Queues, Self::Limits, Self::Webhooks];

    /// Its name in keys and paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedules => "schedules",
            Self::Queues => "queues",
            Self::Limits => "limits",
            Self::Webhooks => "webhooks",
        }
    }

    /// The most documents of this kind.
    pub fn documents_max(self) -> usize {
        match self {
            Self::Webhooks => WEBHOOKS_MAX,
            _ => DOCUMENTS_MAX,
        }
    }
}

impl fmt::Display for DocumentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DocumentKind {
    type Err = UnknownDocumentKind;

    fn from_str(text: &str) -> Result<Self, UnknownDocumentKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| UnknownDocumentKind {
            text: text.chars().take(64).collect(),
        })
    }
}

impl Serialize for DocumentKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for DocumentKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Names one document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId {
    /// Its kind.
    pub kind: DocumentKind,
    /// Its name, unique within the kind.
    pub name: DocumentName,
}

impl fmt::Display for DocumentId {
    /// The kind and the name with a slash between them, as in keys. Names contain no slash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl DocumentId {
    /// Reads what `Display` writes. `None` for a kind of a later version, or for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('/')?;
        Some(Self {
            kind: kind.parse().ok()?,
            name: name.parse().ok()?,
        })
    }
}

/// A document as it is stored, without its kind and name, which are its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredDocument {
    /// How often it was written.
    pub revision: u64,
    /// The operation that wrote it. This is its version.
    pub op_id: OpId,
    /// Earlier operations, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_ops: Vec<OpId>,
    /// When it was written.
    pub updated_at: Timestamp,
    /// The body. `None` marks a removed document in stores that cannot delete under a condition.
    #[serde(default)]
    pub body: Option<Json>,
    /// The recent starts under a limit, in engines that hold all tasks in memory. They are no part of the version.
    #[serde(default, skip_serializing_if = "StartWindow::is_empty")]
    pub starts: StartWindow,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A change of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentChange {
    /// The version that it is based on; `None` if the document must not exist.
    pub expected: Option<OpId>,
    /// The new body; `None` to remove the document.
    pub body: Option<Json>,
    /// Identifies the change, and becomes the version of the document.
    pub op: OpId,
}

/// What a change leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentOutcome {
    /// The document to store. Its body is `None` if it is removed.
    Write(Box<StoredDocument>),
    /// The change was made before, or there is nothing to remove.
    Unchanged,
}

/// Why a change of a document is rejected. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DocumentRejection {
    /// The document is not in the expected version.
    #[error("it has changed since it was read")]
    Conflict,
    /// The body is too large.
    #[error("it has {size} bytes, and the limit is {DOCUMENT_MAX_BYTES}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// The body is not a JSON object.
    #[error("it must be a JSON object")]
    NotAnObject,
}

impl StoredDocument {
    /// Whether it contains this operation.
    pub fn contains(&self, op: OpId) -> bool {
        self.op_id == op || self.recent_ops.contains(&op)
    }

    /// Decides on a change. `current` is what is stored, removed documents included.
    pub fn change(
        current: Option<&Self>,
        change: DocumentChange,
        now: Timestamp,
    ) -> Result<DocumentOutcome, DocumentRejection> {
        if let Some(body) = &change.body {
            if body.size() > DOCUMENT_MAX_BYTES {
                return Err(DocumentRejection::TooLarge { size: body.size() });
            }
            if !body.as_str().trim_start().starts_with('{') {
                return Err(DocumentRejection::NotAnObject);
            }
        }
        if current.is_some_and(|current| current.contains(change.op)) {
            return Ok(DocumentOutcome::Unchanged);
        }
        let live = current.filter(|current| current.body.is_some());
        if live.is_none() && change.body.is_none() {
            return Ok(DocumentOutcome::Unchanged);
        }
        if live.map(|live| live.op_id) != change.expected {
            return Err(DocumentRejection::Conflict);
        }
        let mut next = match current {
            Some(current) => current.clone(),
            None => Self {
                revision: 0,
                op_id: change.op,
                recent_ops: Vec::new(),
                updated_at: now,
                body: None,
                starts: StartWindow::default(),
                extra: Extra::NONE,
            },
        };
        if current.is_some() {
            next.recent_ops.push(next.op_id);
            let excess = next.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
            next.recent_ops.drain(..excess);
        }
        if live.is_none() {
            next.extra = Extra::NONE;
            next.starts = StartWindow::default();
        }
        next.revision = next.revision.saturating_add(1);
        next.op_id = change.op;
        next.updated_at = now;
        next.body = change.body;
        Ok(DocumentOutcome::Write(Box::new(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u128) -> OpId {
        OpId::from_random(number)
    }

    fn change(expected: Option<OpId>, body: Option<&str>, op: OpId) -> DocumentChange {
        DocumentChange {
            expected,
            body: body.map(|text| Json::parse(text).unwrap()),
            op,
        }
    }

    fn written(current: Option<&StoredDocument>, change: DocumentChange) -> StoredDocument {
        let now = Timestamp::from_millis(7);
        match StoredDocument::change(current, change, now).unwrap() {
            DocumentOutcome::Write(document) => *document,
            DocumentOutcome::Unchanged => panic!("nothing was written"),
        }
    }

    fn decide(
        current: Option<&StoredDocument>,
        change: DocumentChange,
    ) -> Result<DocumentOutcome, DocumentRejection> {
        StoredDocument::change(current, change, Timestamp::from_millis(9))
    }

    #[test]
    fn a_change_names_the_version_that_it_builds_upon() {
        let first = written(None, change(None, Some("{}"), op(1)));
        let second = written(Some(&first), change(Some(op(1)), Some(r#"{"a":1}"#), op(2)));
        assert_eq!((second.revision, second.op_id), (2, op(2)));
        for expected in [None, Some(op(1)), Some(op(9))] {
            let late = decide(Some(&second), change(expected, Some("{}"), op(3)));
            assert_eq!(late, Err(DocumentRejection::Conflict));
            let removal = decide(Some(&second), change(expected, None, op(3)));
            assert_eq!(removal, Err(DocumentRejection::Conflict));
        }
        let missing = decide(None, change(Some(op(1)), Some("{}"), op(3)));
        assert_eq!(missing, Err(DocumentRejection::Conflict));
    }

    #[test]
    fn a_repeated_change_has_no_second_effect() {
        let first = written(None, change(None, Some("{}"), op(1)));
        let second = written(Some(&first), change(Some(op(1)), Some("{}"), op(2)));
        for number in [1, 2] {
            let again = decide(Some(&second), change(None, Some("{}"), op(number)));
            assert_eq!(again, Ok(DocumentOutcome::Unchanged));
        }
    }

    #[test]
    fn a_removed_document_never_has_an_old_version_again() {
        let first = written(None, change(None, Some("{}"), op(1)));
        let removed = written(Some(&first), change(Some(op(1)), None, op(2)));
        assert_eq!(removed.body, None);
        let again = decide(Some(&removed), change(None, None, op(3)));
        assert_eq!(again, Ok(DocumentOutcome::Unchanged));
        let created = written(Some(&removed), change(None, Some("{}"), op(4)));
        assert_eq!(created.revision, 3);
        let stale = decide(Some(&created), change(Some(op(1)), Some("{}"), op(5)));
        assert_eq!(stale, Err(DocumentRejection::Conflict));
    }

    #[test]
    fn bodies_are_bounded_objects() {
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(DOCUMENT_MAX_BYTES));
        let large = decide(None, change(None, Some(&large), op(1)));
        assert!(matches!(large, Err(DocumentRejection::TooLarge { .. })));
        for body in ["[]", "1", "null", "\"{\""] {
            let refused = decide(None, change(None, Some(body), op(1)));
            assert_eq!(refused, Err(DocumentRejection::NotAnObject), "{body}");
        }
    }

    #[test]
    fn a_stored_document_round_trips_with_fields_of_later_versions() {
        let text = r#"{"revision":3,"op_id":"550e8400-e29b-41d4-a716-446655440000","updated_at":"2026-01-01T00:00:00.000Z","body":{"z": 1.0},"later":[1]}"#;
        let document: StoredDocument = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&document).unwrap(), text);
        let next = written(
            Some(&document),
            change(Some(document.op_id), Some("{}"), op(2)),
        );
        assert!(next.extra.get("later").is_some());
        let id = DocumentId {
            kind: DocumentKind::Limits,
            name: "stripe".parse().unwrap(),
        };
        assert_eq!(DocumentId::parse(&id.to_string()), Some(id));
        for bad in ["", "limits", "limits/", "later/a", "limits/a/b"] {
            assert_eq!(DocumentId::parse(bad), None, "{bad}");
        }
    }
}
