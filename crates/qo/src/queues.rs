//! The settings of queues: defaults for their tasks, and bounds on how long and how many of them wait.

use qo_core::{DocumentKind, InvalidQueueSettings, Json, QueueName, QueueSettings, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentQuery, DocumentWrite};
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::queue::Queue;

/// How often a change is tried while others change the same settings.
const TRIES_MAX: u32 = 20;

/// The queues of a store and their settings, from [`Queue::queues`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), qo::Error> {
/// # let queue = qo::connect("memory:").await?;
/// queue
///     .queues()
///     .change("mail", |settings| {
///         settings.max_retries = Some(8);
///         settings.max_waiting = Some(10_000);
///     })
///     .await?;
/// let submitted = queue.task("send", &1)?.queue("mail").submit().await?;
/// assert_eq!(submitted.task.max_retries, 8);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Queues {
    queue: Queue,
}

/// A queue and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// Its name.
    pub queue: QueueName,
    /// Its settings.
    pub settings: QueueSettings,
    /// When the settings were last changed; `None` if there are none.
    pub updated_at: Option<Timestamp>,
}

impl Queue {
    /// The queues of this store and their settings.
    pub fn queues(&self) -> Queues {
        Queues {
            queue: self.clone(),
        }
    }
}

impl Queues {
    /// The queues that have settings, ordered by name.
    pub async fn list(&self) -> Result<Vec<QueueInfo>, Error> {
        let query = DocumentQuery::all(DocumentKind::Queues);
        let documents = self.queue.engine().documents(&query).await?;
        let mut queues = Vec::with_capacity(documents.len());
        for document in documents {
            let queue = QueueName::of_document(&document.id.name);
            match info(queue.clone(), Some(&document)) {
                Ok(info) => queues.push(info),
                Err(error) => {
                    tracing::warn!(%queue, %error, "skipping the unreadable settings of a queue");
                }
            }
        }
        Ok(queues)
    }

    /// The settings of one queue, which may be none.
    pub async fn get(&self, queue: &str) -> Result<QueueInfo, Error> {
        let queue = QueueName::new(queue)?;
        let document = self.find(&queue).await?;
        Ok(info(queue, document.as_ref())?)
    }

    /// Replaces the settings of a queue. What is `None` gets its default.
    pub async fn set(&self, queue: &str, settings: QueueSettings) -> Result<QueueInfo, Error> {
        self.write(queue, move |known| {
            // Fields of a later version stay.
            let extra = std::mem::take(&mut known.extra);
            *known = settings.clone();
            if known.extra.is_empty() {
                known.extra = extra;
            }
        })
        .await
    }

    /// Changes the settings of a queue.
    pub async fn change(
        &self,
        queue: &str,
        change: impl FnMut(&mut QueueSettings),
    ) -> Result<QueueInfo, Error> {
        self.write(queue, change).await
    }

    async fn write(
        &self,
        queue: &str,
        mut change: impl FnMut(&mut QueueSettings),
    ) -> Result<QueueInfo, Error> {
        let queue = QueueName::new(queue)?;
        let id = QueueSettings::document_id(&queue);
        let op = self.queue.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            let document = self.find(&queue).await?;
            // Settings that cannot be read can still be replaced.
            let known = info(queue.clone(), document.as_ref()).ok();
            let mut settings = known
                .as_ref()
                .map_or(QueueSettings::NONE, |it| it.settings.clone());
            change(&mut settings);
            settings.validate()?;
            if let Some(known) = known.filter(|known| known.settings == settings) {
                return Ok(known);
            }
            let body = if settings.is_empty() {
                None
            } else {
                Some(Json::from_value(&settings)?)
            };
            let expected = document.map(|document| document.version);
            let write = DocumentWrite::new(id.clone(), expected, body, op);
            match self.queue.engine().write_document(write).await {
                Ok(written) => return Ok(info(queue, written.as_ref())?),
                Err(EngineError::DocumentConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::DocumentConflict { id }.into())
    }

    async fn find(&self, queue: &QueueName) -> Result<Option<Document>, Error> {
        let query = DocumentQuery::one(&QueueSettings::document_id(queue));
        let documents = self.queue.engine().documents(&query).await?;
        Ok(documents.into_iter().next())
    }
}

fn info(queue: QueueName, document: Option<&Document>) -> Result<QueueInfo, InvalidQueueSettings> {
    let settings = match document {
        Some(document) => QueueSettings::parse(&document.body)?,
        None => QueueSettings::NONE,
    };
    Ok(QueueInfo {
        queue,
        settings,
        updated_at: document.map(|document| document.updated_at),
    })
}
