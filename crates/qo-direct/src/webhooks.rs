//! The deliveries of webhooks ([`qo_core::webhook`]).
//!
//! # Steps of the end of a task
//!
//! | step | what | a crash right after it leaves | repaired by |
//! | --- | --- | --- | --- |
//! | 1 | swap the task: **it has ended** | an ended task without deliveries, and its old lease entry, if it was running | the lease reaper, through the lease entry, within about a minute; the sweeper, which looks at every changed task, within about ten |
//! | 2 | submit the deliveries | the old entries | the same: it finds the deliveries |
//! | 3 | delete the old entries | nothing | |
//!
//! The old entries are deleted only if step 2 has succeeded. The end is not delayed or undone if it fails.
//!
//! A program that changes records without this code, such as the dashboard on a bucket or an older version of qo, leaves step 2 to the
//! sweeper. Neither repair helps if the task is replayed, archived or purged before it: then nothing shows any more how it ended.
//!
//! The sweeper looks only at tasks that are new to it. The daily look at old records would find that deliveries were purged meanwhile, and
//! submit them again.
//!
//! # Requests
//!
//! | what | requests |
//! | --- | --- |
//! | a process that ends tasks | 1 LIST per ten minutes: the webhooks are cached, and listed again when the signal announces a change. One that does not read the signal for its claims reads it every five seconds at most |
//! | the end of a task that no webhook matches | nothing |
//! | the end of a task that a webhook matches | those of a submit |
//! | a pass of the sweeper | 1 GET per delivery of a task that ended since the last one |

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::transition::Submission;
use qo_core::webhook::is_end;
use qo_core::{DocumentKind, Rejection, Task, TaskId, Webhook, WebhookRules};
use qo_engine::EngineError;
use qo_engine::api::SubmitRequest;

use super::documents::ParsedDocuments;
use super::submit::NewTask;
use super::{DirectEngine, lock};

/// How old the signal may be that shows whether the webhooks have changed. Workers read it more often anyway.
const SIGNAL_AGE_MAX: Duration = Duration::from_secs(5);

/// The webhooks as this process knows them.
#[derive(Default)]
pub(super) struct KnownWebhooks(Mutex<ParsedDocuments<WebhookRules>>);

impl DirectEngine {
    /// Submits the deliveries of a task, if this change has ended it. Returns false if that failed: then somebody else must find the task.
    pub(super) async fn deliver_end(&self, before: &Task, after: &Task) -> bool {
        if !is_end(before.status, after.status) {
            return true;
        }
        match self.submit_deliveries(after).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(task = %after.id, %error, "the task has ended, but its webhooks were not notified; the lease reaper or the sweeper will notify them");
                false
            }
        }
    }

    async fn submit_deliveries(&self, task: &Task) -> Result<(), EngineError> {
        for delivery in self.webhook_rules().await?.deliveries(task) {
            self.submit_delivery(delivery).await?;
        }
        Ok(())
    }

    /// Submits the deliveries of an ended task that do not exist.
    pub(super) async fn restore_deliveries(&self, task: &Task) -> Result<(), EngineError> {
        if !task.status.is_terminal() {
            return Ok(());
        }
        for delivery in self.webhook_rules().await?.deliveries(task) {
            if !self.has_task(delivery.id).await? {
                tracing::info!(task = %task.id, delivery = %delivery.id, "notifying a webhook of the end of a task");
                self.submit_delivery(delivery).await?;
            }
        }
        Ok(())
    }

    async fn has_task(&self, id: TaskId) -> Result<bool, EngineError> {
        match self.read(id).await {
            // One that cannot be read exists.
            Ok(_) | Err(EngineError::Unreadable { .. }) => Ok(true),
            Err(EngineError::Rejected(Rejection::NotFound { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Submits a delivery as any task, but always: it is not refused if its queue is full.
    async fn submit_delivery(&self, delivery: Submission) -> Result<(), EngineError> {
        let id = delivery.id;
        let Some(request) = SubmitRequest::of_submission(delivery) else {
            return Ok(());
        };
        let input = self.place_input(&request.input)?;
        let settings = self.settings_of(&request.queue).await?;
        let new = NewTask {
            request: &request,
            input: &input,
            settings: &settings,
        };
        let submitted = match self.create(id, None, new).await {
            // It was there, and has been delivered and purged.
            Err(error) if error.is_not_found() => return Ok(()),
            created => created?,
        };
        if submitted.task.attempt == 0 {
            self.publish_entry(&submitted.task).await;
        }
        if !submitted.duplicate {
            self.shared.watchers.notify("submit", &submitted.task);
        }
        Ok(())
    }

    /// The webhooks. A change takes effect within seconds.
    async fn webhook_rules(&self) -> Result<Arc<WebhookRules>, EngineError> {
        let signal = &self.shared.signal;
        let now = self.runtime().monotonic();
        let is_old = (signal.read_at()).is_none_or(|read_at| read_at + SIGNAL_AGE_MAX <= now);
        if is_old && self.is_list_fresh(DocumentKind::Webhooks) {
            signal.poll().await;
        }
        let documents = self.cached_documents(DocumentKind::Webhooks).await?;
        let mut known = lock(&self.shared.webhooks.0);
        known.update(documents, Webhook::read);
        Ok(Arc::clone(&known.rules))
    }
}
