//! Sends the notifications of webhooks, one per attempt of a delivery.
//!
//! The address and the secret are read at each attempt, so a corrected address also applies to waiting notifications. The rules for allowed
//! addresses and for responses are those of `http`.
//!
//! | response | the delivery |
//! | --- | --- |
//! | 2xx | is completed |
//! | 429 or 503 with `Retry-After` | waits that long |
//! | 410 | fails permanently: the receiver wants no more |
//! | anything else, or none | is retried |
//! | the webhook was removed | is completed without a request |

use std::time::Duration;

use async_trait::async_trait;
use qo::encryption::error_sealed_with;
use qo::webhook::WebhookTarget;
use qo::webhook::signature::{ID_HEADER, SIGNATURE_HEADER, SigningKey, TIMESTAMP_HEADER};
use qo::{Context, Json, Queue, StopReason, TaskError, TaskHandler};
use qo_core::webhook::Delivery;
use qo_core::webhook::delivery::{EndedTask, Notification, TASK_TYPE};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::http::{HttpSettings, Target};

/// How long a receiver may take to respond. It should accept a notification and do its work afterwards.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends notifications.
#[derive(Debug)]
pub struct WebhookHandler {
    queue: Queue,
    settings: HttpSettings,
    allow_private: bool,
}

impl WebhookHandler {
    /// Sends the notifications of this queue's webhooks.
    pub fn new(queue: Queue, settings: HttpSettings, allow_private: bool) -> Self {
        Self {
            queue,
            settings,
            allow_private,
        }
    }

    async fn deliver(&self, input: &Json, context: &Context) -> Result<Option<Json>, TaskError> {
        let delivery: Delivery = serde_json::from_str(input.as_str())
            .map_err(|error| TaskError::permanent(format!("this is no delivery: {error}")))?;
        let target = self.queue.webhooks().target(&delivery.webhook).await;
        let Some(target) = target.map_err(|error| unreadable(&error))? else {
            return output(&json!({ "skipped": "the webhook was removed" }));
        };
        let WebhookTarget { url, key } = target;
        let Some(key) = key else {
            return Err(TaskError::retryable(
                "the server does not show the secret of the webhook to workers; deliver with `qo serve --webhooks`",
            ));
        };
        let url = Target::parse(&url, self.allow_private).map_err(TaskError::permanent)?;
        let body = body_of(&delivery);
        let headers = self.signed_headers(&key, context, &body);
        let response = self
            .settings
            .post(&url, headers, body, Some(RESPONSE_TIMEOUT))
            .await?;
        let status = response.status();
        if status.is_success() {
            return output(&json!({ "status": status.as_u16() }));
        }
        Err(match self.settings.error_of(response).await {
            TaskError::Permanent(text) if status != StatusCode::GONE => TaskError::Retryable(text),
            error => error,
        })
    }

    fn signed_headers(&self, key: &SigningKey, context: &Context, body: &str) -> HeaderMap {
        // The same for all attempts, so a receiver recognises a notification that it has already.
        let id = context.task().id.to_string();
        let timestamp = self.queue.now().as_millis().unsigned_abs() / 1_000;
        let signature = key.sign(&id, timestamp, body.as_bytes());
        let values = [
            (ID_HEADER, id),
            (TIMESTAMP_HEADER, timestamp.to_string()),
            (SIGNATURE_HEADER, signature),
        ];
        let values = values.into_iter().filter_map(|(name, value)| {
            let value = HeaderValue::from_str(&value).ok()?;
            Some((HeaderName::from_static(name), value))
        });
        let mut headers: HeaderMap = values.collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
    }
}

/// The body of the request, as it is stored. An encrypted error is left out.
fn body_of(delivery: &Delivery) -> String {
    let stored = delivery.body.get();
    let parsed = serde_json::from_str::<Notification<EndedTask>>(stored);
    let is_sealed = |error: &str| error_sealed_with(error).is_some();
    match parsed {
        Ok(mut notification) if notification.data.error.as_deref().is_some_and(is_sealed) => {
            notification.data.error = None;
            serde_json::to_string(&notification).unwrap_or_default()
        }
        _ => stored.to_owned(),
    }
}

fn output(value: &serde_json::Value) -> Result<Option<Json>, TaskError> {
    Json::from_value(value)
        .map(Some)
        .map_err(TaskError::permanent)
}

fn unreadable(error: &qo::Error) -> TaskError {
    TaskError::retryable(format!("cannot read the webhook: {error}"))
}

#[async_trait]
impl TaskHandler for WebhookHandler {
    fn task_type(&self) -> &str {
        TASK_TYPE
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let stop = context.cancellation().cancelled();
        tokio::select! {
            biased;
            result = self.deliver(&input, &context) => result,
            () = stop => Err(match context.stop_reason() {
                Some(StopReason::TimedOut) => TaskError::Timeout,
                _ => TaskError::Cancelled,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(error: &str) -> Delivery {
        let body = format!(
            r#"{{"type":"task.failed","timestamp":"2026-01-01T00:00:00.000Z","data":{{"id":"550e8400-e29b-41d4-a716-446655440000","task_type":"t","queue":"q","status":"failed","attempt":1,"created_at":"2026-01-01T00:00:00.000Z","error":"{error}"}}}}"#
        );
        let text = format!(r#"{{"webhook":"a","body":{body}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_body_is_sent_as_it_is_stored_but_for_encrypted_errors() {
        let plain = delivery("no such user");
        assert_eq!(body_of(&plain), plain.body.get());
        let sealed = body_of(&delivery("qo-encrypted:1:key:salt.text"));
        assert!(!sealed.contains("error"), "{sealed}");
        assert!(sealed.contains(r#""attempt":1"#), "{sealed}");
    }
}
