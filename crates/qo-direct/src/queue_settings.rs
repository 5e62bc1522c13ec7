//! The settings of queues in direct mode: cached, so that no submit and no claim needs a request of its own for them.
//!
//! A submit copies the defaults and the maximum wait into the task, so only submits read the settings, and the sweeper reads the retention.
//!
//! | what | requests |
//! | --- | --- |
//! | the first submit of a process to a queue | 1 GET |
//! | a process that submits all the time | none: the signal, which it reads before each write of it, announces changes |
//! | a process that submits now and then | at most 1 GET per queue and 10 s |
//! | a queue with a maximum number of waiting tasks | 1 LIST per second and process that submits, and 1 more per 1,000 due tasks |
//!
//! A process that changes settings may die before it announces the change, so they are read again at the fallback interval. If they cannot
//! be read, the last known ones are used.
//!
//! # How many tasks wait
//!
//! A process counts the ready entries of the queue, and adds its own submits until it counts again. It counts again a second later, or as
//! many seconds later as the count took LISTs. So a queue may exceed its maximum by what other processes submit in that time, and by tasks
//! that become due: delayed tasks, and tasks behind another one of their ordering key, have no ready entry and are not counted. Tasks that
//! are claimed make room when they are counted again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::keys::ready_prefix;
use qo_core::{DocumentId, DocumentKind, QueueName, QueueSettings};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentQuery};

use super::signal_record::QUEUES;
use super::{DirectEngine, lock};

/// How long settings are used without any sign that they have not changed.
const TRUST: Duration = Duration::from_secs(10);
/// The most queues whose settings are cached. At the limit the cache is cleared.
const QUEUES_MAX: usize = 10_000;
/// How long a count is used, per LIST that it took.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// What this process knows of the settings of queues.
#[derive(Default)]
pub(super) struct KnownSettings {
    known: Mutex<BTreeMap<QueueName, Known>>,
    /// Held while settings are read, so that concurrent submits read them once.
    reading: tokio::sync::Mutex<()>,
    /// The waiting tasks of queues that have a maximum. Held while they are counted.
    waiting: tokio::sync::Mutex<BTreeMap<QueueName, WaitingCount>>,
}

#[derive(Clone)]
struct Known {
    settings: Arc<QueueSettings>,
    /// When they were read, and at which signal epoch.
    at: Duration,
    epoch: u64,
}

struct WaitingCount {
    /// The tasks that were counted, and those that this process has submitted since.
    waiting: u64,
    /// When to count again.
    until: Duration,
}

impl DirectEngine {
    /// The settings of a queue, at most a few seconds old.
    pub(super) async fn settings_of(
        &self,
        queue: &QueueName,
    ) -> Result<Arc<QueueSettings>, EngineError> {
        if let Some(known) = self.fresh_settings(queue) {
            return Ok(known);
        }
        let _reading = self.shared.queue_settings.reading.lock().await;
        if let Some(known) = self.fresh_settings(queue) {
            return Ok(known);
        }
        let epoch = self.shared.signal.epoch_of(QUEUES);
        let at = self.runtime().monotonic();
        let query = DocumentQuery::one(&QueueSettings::document_id(queue));
        let read = self.read_documents(&query).await;
        let settings = match read {
            Ok(documents) => self.parse_settings(queue, documents.first()),
            Err(error) => match self.last_settings(queue) {
                Some(settings) => {
                    tracing::debug!(%queue, %error, "cannot read the settings of a queue; using the last known ones");
                    settings
                }
                None => return Err(error),
            },
        };
        let mut known = lock(&self.shared.queue_settings.known);
        if known.len() >= QUEUES_MAX {
            known.clear();
        }
        known.insert(
            queue.clone(),
            Known {
                settings: Arc::clone(&settings),
                at,
                epoch,
            },
        );
        Ok(settings)
    }

    fn parse_settings(&self, queue: &QueueName, document: Option<&Document>) -> Arc<QueueSettings> {
        match document.map(|document| QueueSettings::parse(&document.body)) {
            None => Arc::default(),
            Some(Ok(settings)) => Arc::new(settings),
            Some(Err(error)) => {
                tracing::warn!(%queue, %error, "cannot read the settings of a queue; set them again");
                self.last_settings(queue).unwrap_or_default()
            }
        }
    }

    fn last_settings(&self, queue: &QueueName) -> Option<Arc<QueueSettings>> {
        let known = lock(&self.shared.queue_settings.known);
        known.get(queue).map(|known| Arc::clone(&known.settings))
    }

    fn fresh_settings(&self, queue: &QueueName) -> Option<Arc<QueueSettings>> {
        let known = lock(&self.shared.queue_settings.known)
            .get(queue)
            .cloned()?;
        let now = self.runtime().monotonic();
        let confirmed_at = self.shared.signal.read_at().unwrap_or_default();
        let is_fresh = known.epoch == self.shared.signal.epoch_of(QUEUES)
            && now < known.at.max(confirmed_at) + TRUST
            && now < known.at + self.config().fallback_interval;
        is_fresh.then_some(known.settings)
    }

    /// Forgets the settings that a document of this process replaces, and tells the other processes.
    pub(super) fn settings_changed(&self, id: &DocumentId) {
        let queue = QueueName::of_document(&id.name);
        lock(&self.shared.queue_settings.known).remove(&queue);
        self.shared.signal.touch(QUEUES, 1);
    }

    /// How long the finished tasks of each queue are kept whose settings say so, in milliseconds.
    pub(super) async fn retentions(&self) -> Result<BTreeMap<QueueName, u64>, EngineError> {
        let documents = self.cached_documents(DocumentKind::Queues).await?;
        let retention = |document: Document| {
            let settings = QueueSettings::parse(&document.body).ok()?;
            let queue = QueueName::of_document(&document.id.name);
            Some((queue, settings.retention_ms()?))
        };
        Ok(documents.into_iter().filter_map(retention).collect())
    }

    /// Rejects a new task if as many wait as the settings of its queue allow. Otherwise the task counts from now on.
    pub(super) async fn admit(
        &self,
        queue: &QueueName,
        settings: &QueueSettings,
    ) -> Result<(), EngineError> {
        let Some(limit) = settings.max_waiting else {
            return Ok(());
        };
        let mut counts = self.shared.queue_settings.waiting.lock().await;
        let now = self.runtime().monotonic();
        let is_fresh = |count: &WaitingCount| now < count.until;
        if !counts.get(queue).is_some_and(is_fresh) {
            let (waiting, lists) = self.count_ready(queue, limit).await?;
            if counts.len() >= QUEUES_MAX {
                counts.clear();
            }
            let until = now + COUNT_INTERVAL * lists;
            counts.insert(queue.clone(), WaitingCount { waiting, until });
        }
        if let Some(count) = counts.get_mut(queue) {
            settings.admit(queue, count.waiting)?;
            count.waiting += 1;
        }
        Ok(())
    }

    /// Takes back what [`Self::admit`] counted for a submit that added no task.
    pub(super) async fn return_place(&self, queue: &QueueName, settings: &QueueSettings) {
        if settings.max_waiting.is_some()
            && let Some(count) = (self.shared.queue_settings.waiting.lock().await).get_mut(queue)
        {
            count.waiting = count.waiting.saturating_sub(1);
        }
    }

    /// Counts the ready entries of a queue up to a limit. Also returns how many LISTs that took.
    async fn count_ready(&self, queue: &QueueName, limit: u64) -> Result<(u64, u32), EngineError> {
        let (mut waiting, mut lists) = (0, 1);
        for task_type in self.types_with_tasks(queue).await? {
            let prefix = ready_prefix(queue, &task_type);
            let mut after: Option<String> = None;
            loop {
                let page = self.full_page(&prefix, after.as_deref()).await?;
                lists += 1;
                waiting += page.entries.len() as u64;
                after = page.next;
                if waiting >= limit {
                    return Ok((waiting, lists));
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok((waiting, lists))
    }
}
