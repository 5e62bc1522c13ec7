//! The deliveries of webhooks: tasks that are submitted because another one has ended, in the same command.

use super::{Changes, QueueState};
use crate::document::DocumentKind;
use crate::id::{OpId, TaskId};
use crate::task::Status;
use crate::time::Timestamp;
use crate::webhook::{Webhook, WebhookRules, is_end};

/// The webhooks, and the tasks that the current command has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Webhooks {
    rules: WebhookRules,
    ended: Vec<TaskId>,
}

impl Webhooks {
    /// Remembers a task that has ended, if there are webhooks at all.
    pub(super) fn record_end(&mut self, id: TaskId, before: Status, after: Status) {
        if is_end(before, after) && !self.rules.is_empty() {
            self.ended.push(id);
        }
    }
}

impl QueueState {
    /// Follows a change of the webhooks. One that this version cannot read is not notified.
    pub(super) fn update_webhooks(&mut self) {
        let documents = self.documents(DocumentKind::Webhooks);
        let rules = documents.filter_map(|(id, document)| {
            let webhook = Webhook::read(document.body.as_ref()?).ok()?;
            Some((id.name.clone(), webhook))
        });
        self.webhooks.rules = rules.collect();
    }

    /// Submits the deliveries of the tasks that this command has ended.
    pub(super) fn submit_deliveries(&mut self, op: OpId, now: Timestamp, changes: &mut Changes) {
        for id in std::mem::take(&mut self.webhooks.ended) {
            let submissions = match self.tasks.get(&id) {
                Some(task) => self.webhooks.rules.deliveries(task),
                None => Vec::new(),
            };
            for submission in submissions {
                let mut submitted = Changes::default();
                self.submit(submission, op, now, &mut submitted);
                changes.deliveries.extend(submitted.tasks);
            }
        }
    }
}
