//! The documents next to the tasks, and the rules in them: the settings of queues, the limits, the webhooks.

use std::collections::BTreeMap;

use super::{Changes, CommandOutcome, QueueState};
use crate::document::{DocumentChange, DocumentId, DocumentKind, DocumentOutcome, StoredDocument};
use crate::limit::{Limit, LimitRules, StartWindow};
use crate::names::{DocumentName, QueueName};
use crate::queue_settings::QueueSettings;
use crate::time::Timestamp;

impl QueueState {
    /// A document.
    pub fn document(&self, id: &DocumentId) -> Option<&StoredDocument> {
        self.documents.get(id)
    }

    /// The documents of a kind, ordered by name.
    pub fn documents(
        &self,
        kind: DocumentKind,
    ) -> impl Iterator<Item = (&DocumentId, &StoredDocument)> {
        self.documents.iter().filter(move |(id, _)| id.kind == kind)
    }

    /// Replaces all documents by what is stored.
    pub fn restore_documents(&mut self, documents: BTreeMap<DocumentId, StoredDocument>) {
        self.documents = documents;
        let queues: Vec<DocumentId> = self
            .documents(DocumentKind::Queues)
            .map(|(id, _)| id.clone())
            .collect();
        let before = std::mem::take(&mut self.settings);
        for id in queues {
            self.read_settings(&id);
        }
        let is_gone = |queue: &QueueName| !self.settings.contains_key(queue);
        for queue in before.into_keys().filter(is_gone) {
            self.ready.set_weights(&queue, BTreeMap::new());
        }
        self.update_limits();
        self.update_webhooks();
    }

    /// The settings of a queue.
    pub fn settings(&self, queue: &QueueName) -> &QueueSettings {
        static NONE: QueueSettings = QueueSettings::NONE;
        self.settings.get(queue).unwrap_or(&NONE)
    }

    /// The settings of all queues that have some.
    pub fn all_settings(&self) -> impl Iterator<Item = (&QueueName, &QueueSettings)> {
        self.settings.iter()
    }

    /// Takes over what a document about a queue says now. One that this version cannot read sets nothing.
    fn read_settings(&mut self, id: &DocumentId) {
        let queue = QueueName::of_document(&id.name);
        let body = self.documents.get(id).and_then(|it| it.body.as_ref());
        let settings = body.and_then(|body| QueueSettings::parse(body).ok());
        let weights = settings.as_ref().map(|it| it.group_weights.clone());
        self.ready.set_weights(&queue, weights.unwrap_or_default());
        match settings {
            Some(settings) => self.settings.insert(queue, settings),
            None => self.settings.remove(&queue),
        };
    }

    pub(super) fn change_document(
        &mut self,
        id: DocumentId,
        change: DocumentChange,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        let kind = id.kind;
        let outcome = StoredDocument::change(self.documents.get(&id), change, now);
        match outcome {
            Err(rejection) => return CommandOutcome::DocumentRejected(rejection),
            Ok(DocumentOutcome::Unchanged) => {
                return CommandOutcome::DocumentSet { changed: false };
            }
            Ok(DocumentOutcome::Write(document)) if document.body.is_some() => {
                self.documents.insert(id.clone(), *document);
            }
            Ok(DocumentOutcome::Write(_)) => {
                self.documents.remove(&id);
            }
        }
        if id.kind == DocumentKind::Queues {
            self.read_settings(&id);
        }
        changes.documents.push(id);
        match kind {
            DocumentKind::Limits => self.update_limits(),
            DocumentKind::Webhooks => self.update_webhooks(),
            DocumentKind::Schedules | DocumentKind::Queues => {}
        }
        CommandOutcome::DocumentSet { changed: true }
    }

    /// Writes the recent starts under a limit into its document: the next leader must not start more.
    pub(super) fn store_starts(&mut self, name: DocumentName, changes: &mut Changes) {
        let starts = self.ready.starts(&name);
        let id = DocumentId {
            kind: DocumentKind::Limits,
            name,
        };
        if let Some(document) = self.documents.get_mut(&id) {
            document.starts = starts;
            changes.documents.push(id);
        }
    }

    /// Follows a change of the limits. What this version cannot read limits nothing.
    fn update_limits(&mut self) {
        let limits = self.documents(DocumentKind::Limits);
        let rules: LimitRules = limits
            .filter_map(|(id, document)| {
                let limit = Limit::read(document.body.as_ref()?).ok()?;
                limit.validate().ok()?;
                Some((id.name.clone(), limit))
            })
            .collect();
        let documents = &self.documents;
        let regroups = self.ready.set_rules(rules, |name| {
            let id = DocumentId {
                kind: DocumentKind::Limits,
                name: name.clone(),
            };
            let document = documents.get(&id);
            document.map_or_else(StartWindow::default, |document| document.starts.clone())
        });
        if regroups {
            self.regroup();
        }
    }
}
