//! Webhooks.

use qo_core::webhook::{InvalidWebhook, Webhook, WebhookEvent, WebhookSecret};
use qo_core::{QueueName, TaskId, TaskType};
use serde::{Deserialize, Serialize};

use super::bounded;

#[cfg(feature = "openapi")]
use super::schema;

/// Where to send notifications, and which outcomes of which tasks to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookBody {
    /// The address: a URL with http or https, without a user, a password or a fragment.
    #[cfg_attr(
        feature = "openapi",
        schema(
            max_length = 2_048,
            pattern = "^https?://([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?([/?][!-\"$-~]*)?$"
        )
    )]
    pub url: String,
    /// The outcomes to send: `completed`, `failed`, `cancelled`. By default the first two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<forms::WebhookEventForm>>, min_items = 1, max_items = 16))]
    pub events: Option<Vec<WebhookEvent>>,
    /// The queues whose tasks it applies to; by default all.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>, max_items = 64))]
    pub queues: Vec<QueueName>,
    /// The types that it applies to; by default all.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>, max_items = 64))]
    pub task_types: Vec<TaskType>,
    /// Signs the notifications: `whsec_` and 24 to 64 bytes in base64. By default a new webhook gets a random secret, and an existing one
    /// keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<String>, pattern = "^whsec_([A-Za-z0-9+/]{4}){8,21}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")
    )]
    pub secret: Option<String>,
}

impl WebhookBody {
    /// Converts to the core's webhook.
    pub fn into_webhook(self) -> Result<Webhook, InvalidWebhook> {
        let default = Webhook::new(&self.url);
        let secret = self.secret.as_deref().map(WebhookSecret::new);
        Ok(Webhook {
            events: once(self.events.unwrap_or(default.events)),
            queues: once(self.queues),
            task_types: once(self.task_types),
            secret: secret.transpose()?,
            ..Webhook::new(&self.url)
        })
    }
}

/// The values without repetitions, in their order.
fn once<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

/// The delivery of a test notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookTestResponse {
    /// The task that sends it.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub delivery: TaskId,
}

/// The forms of requests and responses, for the API document.
#[cfg(feature = "openapi")]
pub mod forms {
    use utoipa::ToSchema;

    use super::super::schema;

    /// The end of a task.
    #[derive(Debug, ToSchema)]
    #[schema(as = WebhookEvent)]
    #[serde(rename_all = "snake_case")]
    pub enum WebhookEventForm {
        /// It has succeeded.
        Completed,
        /// It has failed permanently.
        Failed,
        /// It was cancelled, or has expired.
        Cancelled,
    }

    /// A webhook, without its secret.
    #[derive(Debug, ToSchema)]
    #[schema(as = Webhook)]
    pub struct WebhookForm {
        /// Its name.
        #[schema(value_type = schema::Name)]
        pub name: String,
        /// The address.
        pub url: String,
        /// The outcomes to send.
        pub events: Vec<WebhookEventForm>,
        /// The queues whose tasks it applies to; absent if all.
        #[schema(value_type = Option<Vec<schema::Name>>)]
        pub queues: Option<Vec<String>>,
        /// The types that it applies to; absent if all.
        #[schema(value_type = Option<Vec<schema::Name>>)]
        pub task_types: Option<Vec<String>>,
        /// When it was created. It does not apply to tasks that ended before.
        #[schema(value_type = Option<schema::Time>)]
        pub created_at: Option<String>,
        /// When it was last changed.
        #[schema(value_type = schema::Time)]
        pub updated_at: String,
        /// Its secret. Only the response that sets it has it.
        pub secret: Option<String>,
    }

    /// All webhooks.
    #[derive(Debug, ToSchema)]
    #[schema(as = Webhooks)]
    pub struct WebhooksForm {
        /// The webhooks, ordered by name.
        pub webhooks: Vec<WebhookForm>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_becomes_the_core_s_webhook() {
        let parse = |text: &str| serde_json::from_str::<WebhookBody>(text);
        let webhook = parse(r#"{"url":"https://a"}"#).unwrap().into_webhook();
        assert_eq!(webhook, Ok(Webhook::new("https://a")));
        let full = r#"{"url":"https://a","events":["failed"],"queues":["q"],"task_types":["t"]}"#;
        let webhook = parse(full).unwrap().into_webhook().unwrap();
        assert_eq!(webhook.to_json().unwrap().as_str(), full);
        let twice = parse(r#"{"url":"https://a","events":["failed","failed"]}"#).unwrap();
        let twice = twice.into_webhook().unwrap();
        assert_eq!(twice.events, [WebhookEvent::Failed]);
        let secret = parse(r#"{"url":"https://a","secret":"x"}"#).unwrap();
        assert_eq!(secret.into_webhook(), Err(InvalidWebhook::Secret));
        for bad in [
            "{}",
            r#"{"url":"https://a","event":"failed"}"#,
            r#"{"url":"https://a","events":["done"]}"#,
            r#"{"url":"https://a","queues":["a/b"]}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
