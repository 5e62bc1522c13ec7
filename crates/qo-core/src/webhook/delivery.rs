//! Deliveries: the tasks that send the notifications of webhooks.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Webhook, WebhookEvent};
use crate::extra::Extra;
use crate::id::TaskId;
use crate::json::Json;
use crate::mix::mix;
use crate::names::{DocumentName, QueueName, Tag, TaskType};
use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::task::{Status, Task};
use crate::time::Timestamp;
use crate::transition::Submission;

/// The queue of deliveries.
pub const QUEUE: &str = "webhooks";
/// The type of deliveries. Servers let only operators submit tasks of this type: a delivery is signed with the secret of its webhook.
pub const TASK_TYPE: &str = "qo.webhook";
/// How long one request may take, with everything around it.
pub const TIMEOUT_SECONDS: u64 = 60;
/// With the delays below, the last retry is about 20 hours after the first request.
pub const RETRIES: u32 = 12;

/// The delays before retries: 1 s, 3 s, 9 s and so on, and at most 6 hours.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial_interval_ms: 1_000,
    max_interval_ms: 6 * 3_600_000,
    multiplier: 3.0,
    jitter_percent: 0.25,
    extra: Extra::NONE,
};

/// Whether a type is that of deliveries.
pub fn is_delivery(task_type: &TaskType) -> bool {
    task_type.as_str() == TASK_TYPE
}

/// The input of a delivery.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delivery {
    /// The webhook.
    pub webhook: DocumentName,
    /// The body of the request: a [`Notification`], kept byte for byte.
    pub body: Box<RawValue>,
}

/// What a receiver gets: the form of Standard Webhooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notification<Data> {
    /// What has happened, such as `task.completed`.
    #[serde(rename = "type")]
    pub event: String,
    /// When it happened.
    pub timestamp: Timestamp,
    /// What it happened to.
    pub data: Data,
}

/// A task that has ended, in a notification: what it is and how it ended, without its input and output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedTask {
    /// Its id.
    pub id: TaskId,
    /// Its type.
    pub task_type: TaskType,
    /// Its queue.
    pub queue: QueueName,
    /// Its status.
    pub status: Status,
    /// The number of attempts.
    pub attempt: u32,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The last error of a task that has not succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl EndedTask {
    fn of(task: &Task) -> Self {
        let error = task.last_error.as_deref();
        Self {
            id: task.id,
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            status: task.status,
            attempt: task.attempt,
            created_at: task.created_at,
            completed_at: task.completed_at,
            tags: task.tags.clone(),
            error: error
                .filter(|_| task.status != Status::Completed)
                .map(str::to_owned),
        }
    }
}

/// The valid webhooks of a queue space.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WebhookRules(Vec<(DocumentName, Webhook)>);

impl FromIterator<(DocumentName, Webhook)> for WebhookRules {
    fn from_iter<I: IntoIterator<Item = (DocumentName, Webhook)>>(webhooks: I) -> Self {
        Self(webhooks.into_iter().collect())
    }
}

impl WebhookRules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The deliveries that a task has because it ended.
    pub fn deliveries(&self, task: &Task) -> Vec<Submission> {
        let matching = self.0.iter().filter_map(|(name, webhook)| {
            let event = webhook.event_of(task)?;
            delivery_of(name, event, task)
        });
        matching.collect()
    }
}

/// The delivery of one webhook. `None` only if a text cannot be written as JSON, which does not happen.
fn delivery_of(name: &DocumentName, event: WebhookEvent, task: &Task) -> Option<Submission> {
    let notification = Notification {
        event: event.notification_type().to_owned(),
        timestamp: task.completed_at.unwrap_or(task.updated_at),
        data: EndedTask::of(task),
    };
    submission(name, &notification, delivery_id(name, task))
}

/// The task that sends a notification to a webhook.
pub fn submission<Data: Serialize>(
    name: &DocumentName,
    notification: &Notification<Data>,
    id: TaskId,
) -> Option<Submission> {
    let delivery = Delivery {
        webhook: name.clone(),
        body: serde_json::value::to_raw_value(notification).ok()?,
    };
    let input = Json::from_value(&delivery).ok()?;
    Some(Submission {
        queue: QueueName::new(QUEUE).ok()?,
        timeout_seconds: Some(TIMEOUT_SECONDS),
        max_retries: Some(RETRIES),
        retry_policy: RETRY_POLICY,
        // The notification must not get lost because many others wait.
        is_exempt: true,
        tags: tag(name).into_iter().collect(),
        ..Submission::new(id, TaskType::new(TASK_TYPE).ok()?, Payload::Inline(input))
    })
}

/// The tag of the deliveries of a webhook. A long name does not fit into a tag.
pub fn tag(name: &DocumentName) -> Option<Tag> {
    Tag::new(&format!("webhook:{name}")).ok()
}

/// The id of a delivery. It follows from the webhook, the task and its end, sorts by the time of the end, and has the route of the task, so
/// that it is found where the task is. A task that ends again after a replay gets another delivery; archiving changes nothing.
fn delivery_id(name: &DocumentName, task: &Task) -> TaskId {
    let (high, low) = task.id.as_uuid().as_u64_pair();
    let ended_at = task.completed_at.unwrap_or(task.updated_at);
    let mut seed = mix(mix(high) ^ low);
    for byte in name.as_str().bytes() {
        seed = mix(seed ^ u64::from(byte));
    }
    seed = mix(seed ^ ended_at.as_millis().unsigned_abs());
    seed = mix(seed ^ (u64::from(task.attempt) << 8) ^ (task.status as u64));
    let random = (u128::from(mix(seed)) << 64) | u128::from(mix(seed ^ high));
    TaskId::from_time(ended_at, random).with_route(task.id.route())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{LeaseId, OpId};
    use crate::transition::{Action, Command, submit};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A task that was cancelled at this time, before anyone claimed it.
    fn cancelled(number: u128, when: Timestamp) -> Task {
        let input = Payload::Inline(Json::null());
        let new = Submission::new(TaskId::from_random(number), "mail".parse().unwrap(), input);
        let mut task = submit(new, OpId::from_random(1), at(0)).unwrap();
        let command = Command {
            op: OpId::from_random(2),
            action: Action::Cancel { reason: None },
        };
        task.apply(command, when).unwrap();
        task
    }

    fn rules(webhook: Webhook) -> WebhookRules {
        WebhookRules::from_iter([("billing".parse().unwrap(), webhook)])
    }

    fn about_cancelled() -> Webhook {
        Webhook {
            events: vec![WebhookEvent::Cancelled],
            ..Webhook::new("https://example.org/")
        }
    }

    #[test]
    fn a_delivery_is_a_valid_task_that_describes_the_end() {
        let task = cancelled(7, at(1_700_000_000_000));
        let mut deliveries = rules(about_cancelled()).deliveries(&task);
        let delivery = deliveries.pop().unwrap();
        assert!(deliveries.is_empty());
        assert_eq!(delivery.id.route(), task.id.route());
        let delivery = submit(delivery, OpId::from_random(3), at(1)).unwrap();
        assert_eq!(delivery.queue.as_str(), "webhooks");
        assert_eq!(delivery.tags[0].to_string(), "webhook:billing");
        let input: Delivery =
            serde_json::from_str(delivery.inline_input().unwrap().as_str()).unwrap();
        assert_eq!(input.webhook.as_str(), "billing");
        let body: Notification<EndedTask> = serde_json::from_str(input.body.get()).unwrap();
        assert_eq!(body.event, "task.cancelled");
        assert_eq!(body.timestamp, at(1_700_000_000_000));
        assert_eq!((body.data.id, body.data.attempt), (task.id, 0));
        assert_eq!(body.data.status, Status::Cancelled);
    }

    #[test]
    fn the_id_follows_from_the_end_and_from_nothing_else() {
        let id = |webhook: &str, task: &Task| delivery_id(&webhook.parse().unwrap(), task);
        let task = cancelled(7, at(1_000));
        let mut read_again = task.clone();
        read_again.revision += 5;
        read_again.updated_at = at(9_000);
        assert_eq!(id("a", &task), id("a", &read_again));
        let others = [
            id("a", &task),
            id("b", &task),
            id("a", &cancelled(8, at(1_000))),
            id("a", &cancelled(7, at(1_001))),
        ];
        for (index, one) in others.iter().enumerate() {
            assert!(!others[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn only_what_a_webhook_names_is_delivered() {
        let task = cancelled(7, at(100_000));
        let count = |webhook: Webhook| rules(webhook).deliveries(&task).len();
        let with = |change: fn(&mut Webhook)| {
            let mut webhook = about_cancelled();
            change(&mut webhook);
            count(webhook)
        };
        assert_eq!(count(Webhook::new("https://example.org/")), 0);
        assert_eq!(with(|_| ()), 1);
        assert_eq!(with(|it| it.queues = vec!["other".parse().unwrap()]), 0);
        assert_eq!(with(|it| it.queues = vec!["default".parse().unwrap()]), 1);
        assert_eq!(with(|it| it.task_types = vec!["other".parse().unwrap()]), 0);
        assert_eq!(with(|it| it.task_types = vec!["mail".parse().unwrap()]), 1);
        assert_eq!(with(|it| it.created_at = Some(at(160_000))), 1);
        assert_eq!(with(|it| it.created_at = Some(at(160_001))), 0);
    }

    #[test]
    fn deliveries_and_unfinished_tasks_have_no_deliveries() {
        let webhook = Webhook {
            events: WebhookEvent::ALL.to_vec(),
            ..Webhook::new("https://example.org/")
        };
        let rules = rules(webhook);
        let task = cancelled(7, at(0));
        let delivery = rules.deliveries(&task).pop().unwrap();
        let mut delivery = submit(delivery, OpId::from_random(3), at(1)).unwrap();
        assert!(rules.deliveries(&delivery).is_empty());
        let claim = Action::Claim {
            worker: "w".parse().unwrap(),
            lease: LeaseId::from_random(1),
            lease_ms: 1_000,
        };
        let apply = |task: &mut Task, action| {
            let op = OpId::from_random(4);
            task.apply(Command { op, action }, at(2)).unwrap();
        };
        apply(&mut delivery, claim);
        apply(&mut delivery, Action::Cancel { reason: None });
        assert!(rules.deliveries(&delivery).is_empty());
        let mut archived = task;
        apply(&mut archived, Action::Archive);
        assert!(rules.deliveries(&archived).is_empty());
    }
}
