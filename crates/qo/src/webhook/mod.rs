//! Webhooks: addresses that are notified when tasks end.
//!
//! ```
//! use qo::webhook::Webhook;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (queue, _clock) = qo::testing::memory_queue()?;
//! let webhook = Webhook::new("https://example.org/hooks/qo");
//! let added = queue.webhooks().put("billing", webhook).await?;
//! let secret = added.secret.ok_or("a new webhook has a new secret")?;
//! println!("the receiver verifies signatures with {}", secret.as_str());
//! # Ok(())
//! # }
//! ```
//!
//! The end of a task submits a delivery for each webhook that it matches: a task of the type `qo.webhook` in the queue `webhooks`. `qo serve
//! --webhooks` and `qo worker --webhooks` send them. [`signature`] signs notifications, and verifies them in receivers.

pub mod signature;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qo_core::webhook::delivery::{Notification, submission};
use qo_core::webhook::{InvalidWebhook, SECRET_PREFIX};
use qo_core::{DocumentKind, DocumentName, Route, TaskId, Timestamp};
use qo_engine::api::{Document, SubmitRequest};
use qo_store::runtime::RuntimeExt;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;

pub use qo_core::webhook::{Webhook, WebhookEvent, WebhookSecret};

use self::signature::SigningKey;
use crate::error::Error;
use crate::named_documents::{Decision, NamedDocuments};
use crate::queue::Queue;

/// The length of a new secret.
const SECRET_BYTES: usize = 32;
/// What the notification of [`Webhooks::test`] says.
const TEST_EVENT: &str = "webhook.test";

/// The webhooks of a queue, from [`Queue::webhooks`].
#[derive(Debug, Clone)]
pub struct Webhooks {
    documents: NamedDocuments,
}

/// A webhook with its name, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookInfo {
    /// Its name.
    pub name: DocumentName,
    /// Where it sends notifications, and which outcomes of which tasks it sends. It has no secret.
    #[serde(flatten)]
    pub webhook: Webhook,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A webhook that was created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookPut {
    /// The webhook.
    #[serde(flatten)]
    pub info: WebhookInfo,
    /// Its secret, if it is new. Nobody shows it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<WebhookSecret>,
}

/// What a process needs to send the notifications of a webhook.
#[derive(Debug, Clone)]
pub struct WebhookTarget {
    /// The address.
    pub url: String,
    /// Signs the notifications. `None` behind a server, which does not show secrets.
    pub key: Option<SigningKey>,
}

impl Queue {
    /// The webhooks of this queue.
    pub fn webhooks(&self) -> Webhooks {
        Webhooks {
            documents: NamedDocuments {
                queue: self.clone(),
                kind: DocumentKind::Webhooks,
            },
        }
    }
}

impl Webhooks {
    /// Creates a webhook, or replaces the one with this name. Without a secret, a new one gets a random secret, and an existing one keeps
    /// its own.
    pub async fn put(&self, name: &str, mut webhook: Webhook) -> Result<WebhookPut, Error> {
        let name = DocumentName::new(name)?;
        webhook.validate()?;
        if let Some(secret) = &webhook.secret {
            SigningKey::new(secret)?;
        }
        let given = webhook.secret.take();
        let generated = if given.is_none() {
            Some(new_secret()?)
        } else {
            None
        };
        let now = self.documents.queue.now();
        let mut fresh = None;
        let written = self.documents.change(&name, |known| {
            let before = known.as_ref().map(read).transpose()?;
            let is_new = before.is_none();
            fresh = given
                .clone()
                .or_else(|| generated.clone().filter(|_| is_new));
            let kept = before.as_ref().and_then(|before| before.secret.clone());
            let created_at = before.and_then(|before| before.created_at);
            let changed = Webhook {
                secret: fresh.clone().or(kept),
                created_at: created_at.or(Some(now)),
                ..webhook.clone()
            };
            Ok(Decision::Write(Some(changed.to_json()?), Vec::new()))
        });
        let written = written.await?.ok_or_else(|| no_webhook(&name))?;
        Ok(WebhookPut {
            info: info(&written)?,
            secret: fresh,
        })
    }

    /// All webhooks, ordered by name, without their secrets.
    pub async fn list(&self) -> Result<Vec<WebhookInfo>, Error> {
        let documents = self.documents.all().await?;
        let mut webhooks = Vec::with_capacity(documents.len());
        for document in &documents {
            match info(document) {
                Ok(webhook) => webhooks.push(webhook),
                Err(error) => {
                    tracing::warn!(webhook = %document.id.name, %error, "skipping an unreadable webhook");
                }
            }
        }
        Ok(webhooks)
    }

    /// One webhook, without its secret.
    pub async fn get(&self, name: &str) -> Result<WebhookInfo, Error> {
        let name = DocumentName::new(name)?;
        let found = self.documents.find(&name).await?;
        found.as_ref().map_or_else(|| Err(no_webhook(&name)), info)
    }

    /// Where to send the notifications of a webhook, and how to sign them; `None` if it does not exist any more.
    pub async fn target(&self, name: &DocumentName) -> Result<Option<WebhookTarget>, Error> {
        let Some(document) = self.documents.find(name).await? else {
            return Ok(None);
        };
        let webhook = read(&document)?;
        let key = webhook.secret.as_ref().map(SigningKey::new).transpose()?;
        Ok(Some(WebhookTarget {
            url: webhook.url,
            key,
        }))
    }

    /// Removes a webhook. Its waiting deliveries are no longer sent.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let name = DocumentName::new(name)?;
        let removing = self.documents.change(&name, |known| {
            known.ok_or_else(|| no_webhook(&name))?;
            Ok(Decision::Write(None, Vec::new()))
        });
        removing.await.map(drop)
    }

    /// Submits the delivery of a notification `webhook.test`, and returns its id.
    pub async fn test(&self, name: &str) -> Result<TaskId, Error> {
        let name = DocumentName::new(name)?;
        let queue = &self.documents.queue;
        let now = queue.now();
        let id = TaskId::from_time(now, queue.runtime().random_u128()).with_route(Route::DOCUMENTS);
        let notification = Notification {
            event: TEST_EVENT.to_owned(),
            timestamp: now,
            data: serde_json::json!({ "webhook": name }),
        };
        let delivery = submission(&name, &notification, id);
        let delivery = delivery.and_then(SubmitRequest::of_submission);
        let changing = self.documents.change(&name, |known| {
            let known = known.ok_or_else(|| no_webhook(&name))?;
            // Only whoever may change a webhook may make it send something.
            let submits = delivery.clone().into_iter().collect();
            Ok(Decision::Write(Some(known.body), submits))
        });
        changing.await?;
        Ok(id)
    }
}

fn read(document: &Document) -> Result<Webhook, InvalidWebhook> {
    Webhook::read(&document.body)
}

fn info(document: &Document) -> Result<WebhookInfo, Error> {
    Ok(WebhookInfo {
        name: document.id.name.clone(),
        webhook: Webhook {
            secret: None,
            ..read(document)?
        },
        updated_at: document.updated_at,
    })
}

/// A random secret, from the operating system's generator.
fn new_secret() -> Result<WebhookSecret, Error> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| crate::encryption::EncryptionError::NoRandomness)?;
    let text = format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes));
    Ok(WebhookSecret::new(&text)?)
}

fn no_webhook(name: &DocumentName) -> Error {
    Error::NoWebhook {
        name: name.to_string(),
    }
}
