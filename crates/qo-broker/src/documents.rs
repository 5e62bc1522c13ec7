//! Documents in the commit loop.
//!
//! A change of a document and the tasks that are submitted with it are applied together and written in one group: after a crash, either
//! all of it is stored or nothing. Everything is checked before anything is changed.

use std::collections::BTreeMap;

use qo_core::queue_state::{CommandOutcome, Request};
use qo_core::transition::submit;
use qo_core::{DocumentId, DocumentKind, StoredDocument, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentQuery, document_error, too_many_documents};
use qo_store::runtime::RuntimeExt;

use super::apply::Applier;
use super::journal::{GroupChanges, Journal};
use super::message::DocumentOrder;

impl Applier {
    pub(super) fn documents(&self, query: &DocumentQuery) -> Vec<Document> {
        let is_asked = |id: &DocumentId| query.name.as_ref().is_none_or(|name| *name == id.name);
        let stored = self.state.documents(query.kind);
        stored
            .filter(|(id, _)| is_asked(id))
            .filter_map(|(id, stored)| Document::of(id.clone(), stored))
            .collect()
    }

    /// Changes a document and submits its tasks, or changes nothing.
    pub(super) fn write_document<J: Journal>(
        &mut self,
        journal: &J,
        order: &DocumentOrder,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) -> Result<Option<Document>, EngineError> {
        let id = &order.write.id;
        let change = order.write.settled_change();
        let current = self.state.document(id);
        let decided = StoredDocument::change(current, change.clone(), now);
        if let Err(rejection) = decided {
            return Err(document_error(id, rejection));
        }
        let is_repeated = current.is_some_and(|current| current.contains(change.op));
        if !is_repeated {
            let is_new = current.is_none() && change.body.is_some();
            if is_new && self.state.documents(id.kind).count() >= id.kind.documents_max() {
                return Err(too_many_documents(id.kind));
            }
            self.check_submits(journal, order, now, changes)?;
            for one in &order.submits {
                // The task cannot be refused any more.
                self.submit(journal, one, now, changes)?;
            }
        }
        // A limit that was raised or removed lets tasks start.
        changes.may_be_claimable |= id.kind == DocumentKind::Limits;
        match self.command(Request::Document(id.clone(), change), now, changes) {
            CommandOutcome::DocumentRejected(rejection) => Err(document_error(id, rejection)),
            _ => Ok(self
                .state
                .document(id)
                .and_then(|stored| Document::of(id.clone(), stored))),
        }
    }

    /// Refuses the order if one of its tasks would be refused, or if all of it does not fit into the journal.
    fn check_submits<J: Journal>(
        &self,
        journal: &J,
        order: &DocumentOrder,
        now: Timestamp,
        changes: &GroupChanges,
    ) -> Result<(), EngineError> {
        let body = order
            .write
            .body
            .as_ref()
            .map_or(0, |body| body.size() as u64);
        let mut bytes = body;
        for one in &order.submits {
            submit(one.submission(now), self.runtime.new_op_id(), now)?;
            self.check_readable(one.id)?;
            bytes += one.bytes();
        }
        journal.admit(changes.input_bytes, bytes)
    }
}

/// Parses stored documents. Skips those that this version cannot read.
pub(super) fn read_documents<'a>(
    stored: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> BTreeMap<DocumentId, StoredDocument> {
    let mut documents = BTreeMap::new();
    for (name, bytes) in stored {
        let Some(id) = DocumentId::parse(name) else {
            tracing::debug!(name, "leaving a document of a later version alone");
            continue;
        };
        match serde_json::from_slice(bytes) {
            Ok(document) => {
                documents.insert(id, document);
            }
            Err(error) => tracing::warn!(%id, %error, "skipping an unreadable document"),
        }
    }
    documents
}
