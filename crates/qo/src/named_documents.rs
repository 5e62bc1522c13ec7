//! The documents of one kind, such as limits, and how they are changed: read, decide, write, and repeat if somebody else was faster.

use qo_core::{DocumentId, DocumentKind, DocumentName, Json};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentQuery, DocumentWrite, SubmitRequest};
use qo_store::runtime::RuntimeExt;

use crate::error::Error;
use crate::queue::Queue;

/// How often a change is tried while others change the same document.
const TRIES_MAX: u32 = 20;

/// The documents of one kind.
#[derive(Debug, Clone)]
pub(crate) struct NamedDocuments {
    pub(crate) queue: Queue,
    pub(crate) kind: DocumentKind,
}

/// What to do with a document.
pub(crate) enum Decision {
    /// It is as it should be.
    Keep(Document),
    /// Write this body, or remove it if there is none, and submit these tasks.
    Write(Option<Json>, Vec<SubmitRequest>),
}

impl NamedDocuments {
    /// All of them, ordered by name.
    pub(crate) async fn all(&self) -> Result<Vec<Document>, Error> {
        let query = DocumentQuery::all(self.kind);
        Ok(self.queue.engine().documents(&query).await?)
    }

    /// One of them, if it exists.
    pub(crate) async fn find(&self, name: &DocumentName) -> Result<Option<Document>, Error> {
        let query = DocumentQuery::one(&self.id_of(name));
        let documents = self.queue.engine().documents(&query).await?;
        Ok(documents.into_iter().next())
    }

    /// Changes one as decided from what it is now. Returns it, or `None` if it is removed.
    pub(crate) async fn change(
        &self,
        name: &DocumentName,
        mut decide: impl FnMut(Option<Document>) -> Result<Decision, Error>,
    ) -> Result<Option<Document>, Error> {
        let id = self.id_of(name);
        for _ in 0..TRIES_MAX {
            let known = self.find(name).await?;
            let expected = known.as_ref().map(|known| known.version);
            let (body, submits) = match decide(known)? {
                Decision::Keep(document) => return Ok(Some(document)),
                Decision::Write(body, submits) => (body, submits),
            };
            let op = self.queue.runtime().new_op_id();
            let write = DocumentWrite {
                submits,
                ..DocumentWrite::new(id.clone(), expected, body, op)
            };
            match self.queue.engine().write_document(write).await {
                Ok(written) => return Ok(written),
                Err(EngineError::DocumentConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::DocumentConflict { id }.into())
    }

    fn id_of(&self, name: &DocumentName) -> DocumentId {
        DocumentId {
            kind: self.kind,
            name: name.clone(),
        }
    }
}
