//! Webhooks: addresses that are notified when tasks end.
//!
//! A webhook is a document ([`DocumentKind::Webhooks`](crate::DocumentKind::Webhooks)). It names ends of tasks, and may name queues and types.
//! When a task ends in one of these ways, the engine submits a **delivery** for each matching webhook: an ordinary task, whose handler sends the
//! notification ([`delivery`]). So deliveries have retries, dead letters and a history, and operators use the same tools as for any task.
//!
//! # No notification is lost by a crash
//!
//! | engine | how the end of a task and its deliveries stay together |
//! | --- | --- |
//! | holds all tasks in memory | [`QueueState`](crate::QueueState) adds the deliveries in the same command, so they are stored in the same commit |
//! | direct mode | the deliveries are submitted after the task is swapped and before its index entries are deleted; whoever finds a stale entry, or the changed task, repeats it |
//!
//! The id of a delivery follows from the webhook, the task and its end, so a repeated submit finds the first one.

pub mod delivery;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use delivery::{Delivery, Notification, WebhookRules};

use crate::extra::Extra;
use crate::json::{InvalidJson, Json};
use crate::names::{QueueName, TaskType};
use crate::task::{Status, Task};
use crate::time::Timestamp;

/// The most webhooks of a queue space. The end of a task submits a delivery for each one that it matches.
pub const WEBHOOKS_MAX: usize = 32;
/// The longest URL in bytes.
pub const URL_MAX_BYTES: usize = 2_048;
/// The most queues, and the most types, that a webhook names.
pub const SELECTORS_MAX: usize = 64;
/// The start of a secret.
pub const SECRET_PREFIX: &str = "whsec_";
/// How long a secret may be behind its prefix: 24 to 64 bytes in base64.
const SECRET_LENGTH: std::ops::RangeInclusive<usize> = 32..=88;
/// How much earlier than the webhook a task may have ended, because the clocks of two processes differ a little.
const CLOCK_MARGIN_MS: u64 = 60_000;

/// The end of a task, as webhooks distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookEvent {
    /// The task has succeeded.
    Completed,
    /// The task has failed permanently: it is a dead letter.
    Failed,
    /// The task was cancelled, or has expired.
    Cancelled,
}

impl WebhookEvent {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Cancelled];

    /// The event that a status is the result of; none for a task that has not ended, or is archived.
    pub fn of(status: Status) -> Option<Self> {
        match status {
            Status::Completed => Some(Self::Completed),
            Status::Failed => Some(Self::Failed),
            Status::Cancelled => Some(Self::Cancelled),
            Status::Pending | Status::Running | Status::Archived => None,
        }
    }

    /// Its name, as in definitions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Its name in notifications.
    pub fn notification_type(self) -> &'static str {
        match self {
            Self::Completed => "task.completed",
            Self::Failed => "task.failed",
            Self::Cancelled => "task.cancelled",
        }
    }

    fn defaults() -> Vec<Self> {
        vec![Self::Completed, Self::Failed]
    }
}

impl fmt::Display for WebhookEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that is not an event.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not an event: use completed, failed or cancelled")]
pub struct UnknownEvent {
    text: String,
}

impl std::str::FromStr for WebhookEvent {
    type Err = UnknownEvent;

    fn from_str(text: &str) -> Result<Self, UnknownEvent> {
        let found = Self::ALL.into_iter().find(|event| event.as_str() == text);
        found.ok_or_else(|| UnknownEvent {
            text: text.chars().take(64).collect(),
        })
    }
}

/// Whether a change of status is an end that webhooks are notified of. A failed task that stops its ordering key ends once more if it is
/// cancelled; to archive a task, or to bring it back, is no end.
pub fn is_end(before: Status, after: Status) -> bool {
    let is_first = !before.is_terminal() && after.is_terminal();
    is_first || (before, after) == (Status::Failed, Status::Cancelled)
}

/// The key with which notifications are signed, as text. It is not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookSecret(String);

impl WebhookSecret {
    /// A secret: `whsec_` and 24 to 64 bytes in base64.
    pub fn new(text: &str) -> Result<Self, InvalidWebhook> {
        let secret = Self(text.to_owned());
        secret.validate()?;
        Ok(secret)
    }

    /// The text, with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn validate(&self) -> Result<(), InvalidWebhook> {
        let is_base64 =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let key = self.0.strip_prefix(SECRET_PREFIX);
        let is_valid = |key: &str| SECRET_LENGTH.contains(&key.len()) && key.bytes().all(is_base64);
        if key.is_some_and(is_valid) {
            return Ok(());
        }
        Err(InvalidWebhook::Secret)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// Where to send notifications, and which outcomes of which tasks to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// The address: a URL with http or https.
    pub url: String,
    /// The outcomes to send.
    #[serde(default = "WebhookEvent::defaults")]
    pub events: Vec<WebhookEvent>,
    /// The queues whose tasks it applies to; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueName>,
    /// The types that it applies to; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_types: Vec<TaskType>,
    /// Signs the notifications. Servers do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<WebhookSecret>,
    /// When it was created. It does not apply to tasks that ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a webhook is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidWebhook {
    /// It is not the JSON of a webhook.
    #[error("{0}")]
    Syntax(String),
    /// It has a field that this version does not know.
    #[error(
        "{name:?} is not a field of a webhook; the fields are url, events, queues, task_types, secret and created_at"
    )]
    UnknownField {
        /// The field.
        name: String,
    },
    /// The address cannot be used.
    #[error("the URL {problem}; use a form such as https://example.org/hooks/qo")]
    Url {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// It is about nothing.
    #[error("it must have at least one event: completed, failed or cancelled")]
    NoEvent,
    /// It names an event, a queue or a type twice, or too many.
    #[error("{field} must have at most {max} different values")]
    Selectors {
        /// The field.
        field: &'static str,
        /// The highest number.
        max: usize,
    },
    /// The secret has another form.
    #[error("a secret must be whsec_ and 24 to 64 bytes in base64; omit it to get a new one")]
    Secret,
}

impl Webhook {
    /// A webhook for completed and failed tasks of all queues and types, without a secret.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            events: WebhookEvent::defaults(),
            queues: Vec::new(),
            task_types: Vec::new(),
            secret: None,
            created_at: None,
            extra: Extra::NONE,
        }
    }

    /// Reads the body of a document that a user wrote. Rejects fields that this version does not know.
    pub fn parse(body: &Json) -> Result<Self, InvalidWebhook> {
        let webhook = Self::read(body)?;
        if let Some(name) = webhook.extra.names().next() {
            let name = name.chars().take(64).collect();
            return Err(InvalidWebhook::UnknownField { name });
        }
        Ok(webhook)
    }

    /// Reads the body of a stored document, and checks it. Fields of later versions are ignored.
    pub fn read(body: &Json) -> Result<Self, InvalidWebhook> {
        let webhook: Self = serde_json::from_str(body.as_str())
            .map_err(|error| InvalidWebhook::Syntax(error.to_string()))?;
        webhook.validate()?;
        Ok(webhook)
    }

    /// The body of its document.
    pub fn to_json(&self) -> Result<Json, InvalidJson> {
        Json::from_value(self)
    }

    /// Checks the fields.
    pub fn validate(&self) -> Result<(), InvalidWebhook> {
        check_url(&self.url).map_err(|problem| InvalidWebhook::Url { problem })?;
        if self.events.is_empty() {
            return Err(InvalidWebhook::NoEvent);
        }
        check_selectors("events", &self.events, WebhookEvent::ALL.len())?;
        check_selectors("queues", &self.queues, SELECTORS_MAX)?;
        check_selectors("task_types", &self.task_types, SELECTORS_MAX)?;
        self.secret.as_ref().map_or(Ok(()), WebhookSecret::validate)
    }

    /// The event of this task that the webhook must be notified of, if any.
    pub fn event_of(&self, task: &Task) -> Option<WebhookEvent> {
        // Deliveries have no deliveries of their own.
        if delivery::is_delivery(&task.task_type) {
            return None;
        }
        let event = WebhookEvent::of(task.status)?;
        let is_later = match (self.created_at, task.completed_at) {
            (Some(created), Some(ended)) => ended.plus_millis(CLOCK_MARGIN_MS) >= created,
            _ => true,
        };
        let matches = is_later
            && self.events.contains(&event)
            && (self.queues.is_empty() || self.queues.contains(&task.queue))
            && (self.task_types.is_empty() || self.task_types.contains(&task.task_type));
        matches.then_some(event)
    }
}

/// Checks the form of a URL: http or https, a name or an address, perhaps a port, and a path. The API document has the same rule as a pattern.
/// Whoever sends the request parses it in full.
fn check_url(url: &str) -> Result<(), &'static str> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .ok_or("must begin with https:// or http://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if url.len() > URL_MAX_BYTES {
        Err("must have at most 2048 bytes")
    } else if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err("must consist of printable ASCII characters without spaces")
    } else if authority.contains('@') {
        Err("must not contain a user or a password, which would be shown")
    } else if !is_authority(authority) {
        Err("must name a host, and perhaps a port")
    } else if path.contains('#') {
        Err("must not have a fragment")
    } else {
        Ok(())
    }
}

/// Whether a text is a name or an address, and perhaps a port.
fn is_authority(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_ipv6 = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let (host, is_host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return false;
        };
        (host, host.bytes().all(is_ipv6), port)
    } else {
        let end = text.find(':').unwrap_or(text.len());
        let (host, port) = text.split_at(end);
        (host, host.bytes().all(is_name), port)
    };
    let is_port = |digits: &str| {
        (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_end = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    !host.is_empty() && is_host && is_end
}

fn check_selectors<T: PartialEq>(
    field: &'static str,
    values: &[T],
    max: usize,
) -> Result<(), InvalidWebhook> {
    let is_repeated = |(index, value): (usize, &T)| values[..index].contains(value);
    if values.len() > max || values.iter().enumerate().any(is_repeated) {
        return Err(InvalidWebhook::Selectors { field, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Webhook, InvalidWebhook> {
        Webhook::parse(&Json::parse(text).unwrap())
    }

    #[test]
    fn definitions_are_checked() {
        let webhook = parse(r#"{"url":"https://example.org/hook"}"#).unwrap();
        assert_eq!(
            webhook.events,
            [WebhookEvent::Completed, WebhookEvent::Failed]
        );
        assert_eq!(webhook, Webhook::new("https://example.org/hook"));
        for (bad, expected) in [
            (r#"{"url":"ftp://a"}"#, "begin with https://"),
            (r#"{"url":"https://"}"#, "name a host"),
            (r#"{"url":"https://:80/"}"#, "name a host"),
            (r#"{"url":"https://u:p@a/"}"#, "user or a password"),
            (r#"{"url":"https://a/ b"}"#, "printable ASCII"),
            (r#"{"url":"https://a/#b"}"#, "fragment"),
            (r#"{"url":"https://a:b/"}"#, "name a host"),
            (r#"{"url":"https://a:123456"}"#, "name a host"),
            (r#"{"url":"https://[::1"}"#, "name a host"),
            (r#"{"url":"https://a!b/"}"#, "name a host"),
            (r#"{"url":"https://a","events":[]}"#, "at least one event"),
            (
                r#"{"url":"https://a","events":["failed","failed"]}"#,
                "different values",
            ),
            (
                r#"{"url":"https://a","events":["done"]}"#,
                "unknown variant",
            ),
            (r#"{"url":"https://a","queues":["a/b"]}"#, "queue name"),
            (r#"{"url":"https://a","secret":"x"}"#, "whsec_"),
            (r#"{"url":"https://a","secret":"whsec_AAAA"}"#, "whsec_"),
            (r#"{"url":"https://a","retries":1}"#, "\"retries\""),
            (r#"{"events":["failed"]}"#, "missing field `url`"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
        for good in [
            "http://a",
            "https://hooks.example.org:8443/a/b?c=d&e=%20",
            "https://[2001:db8::1]:80/",
            "https://1.2.3.4?x",
        ] {
            assert_eq!(Webhook::new(good).validate(), Ok(()), "{good}");
        }
        let long = format!("https://example.org/{}", "x".repeat(URL_MAX_BYTES));
        assert!(Webhook::new(&long).validate().is_err());
        let mut many = Webhook::new("https://a");
        let name = |number: usize| format!("q{number}").parse().unwrap();
        many.queues = (0..=SELECTORS_MAX).map(name).collect();
        assert!(many.validate().is_err());
    }

    #[test]
    fn fields_of_later_versions_are_read_from_stored_documents() {
        let text = r#"{"url":"https://a","events":["failed"],"later":1}"#;
        let body = Json::parse(text).unwrap();
        assert!(Webhook::parse(&body).is_err());
        let stored = Webhook::read(&body).unwrap();
        assert_eq!(stored.to_json().unwrap().as_str(), text);
    }

    #[test]
    fn an_archived_task_does_not_end_again() {
        assert!(is_end(Status::Running, Status::Completed));
        assert!(is_end(Status::Pending, Status::Cancelled));
        assert!(is_end(Status::Failed, Status::Cancelled));
        assert!(!is_end(Status::Running, Status::Pending));
        assert!(!is_end(Status::Completed, Status::Archived));
        assert!(!is_end(Status::Archived, Status::Cancelled));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = WebhookSecret::new(&format!("whsec_{}", "A".repeat(32))).unwrap();
        assert!(!format!("{secret:?}").contains("AAA"));
        assert!(WebhookSecret::new("AAAA").is_err());
        assert!(WebhookSecret::new(&format!("whsec_{}", "A".repeat(89))).is_err());
        assert!(WebhookSecret::new(&format!("whsec_{}", "-".repeat(32))).is_err());
    }
}
