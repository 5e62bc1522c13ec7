//! Every end of a task is delivered once.
//!
//! The id of a delivery follows from the webhook, the task and its end. So the ends that are stored tell which deliveries must exist, and any
//! other delivery would notify a receiver of something that did not happen, or twice.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::webhook::delivery::{EndedTask, is_delivery};
use qo_core::webhook::{Delivery, Notification, is_end};
use qo_core::{Task, TaskId, WebhookRules};

use crate::life::{Change, Conditions, Life, Step};
use crate::promise::{Breaches, Promise};

/// The ends of a task of which webhooks must be notified, and the ids of the deliveries. Where an engine delivers after it has stored the end,
/// only the last state of the task tells how it ended: a task that has changed since then may have been too quick.
fn deliveries_due(rules: &WebhookRules, life: &Life, delivers_with_end: bool) -> BTreeSet<TaskId> {
    let first = if delivers_with_end {
        0
    } else {
        life.changes.len().saturating_sub(1)
    };
    deliveries_of(rules, &life.changes[first..])
}

fn deliveries_of(rules: &WebhookRules, changes: &[Change]) -> BTreeSet<TaskId> {
    let ended = changes.iter().filter_map(ended);
    let deliveries = ended.flat_map(|task| rules.deliveries(task));
    deliveries.map(|delivery| delivery.id).collect()
}

/// The task, if a change has ended it.
fn ended(change: &Change) -> Option<&Task> {
    let after = change.after.as_deref()?;
    let before = change.before.as_deref()?;
    is_end(before.status, after.status).then_some(after)
}

/// Checks that every end has its deliveries, and every delivery an end. The `damaged` tasks are exempt.
pub fn check_deliveries(
    rules: &WebhookRules,
    lives: &BTreeMap<TaskId, Life>,
    damaged: &BTreeSet<TaskId>,
    conditions: Conditions,
    breaches: &mut Breaches,
) {
    let mut explained = BTreeSet::new();
    for (id, life) in lives {
        explained.extend(deliveries_of(rules, &life.changes));
        for delivery in deliveries_due(rules, life, conditions.delivers_with_end) {
            if !lives.contains_key(&delivery) && !damaged.contains(&delivery) {
                let text = format!("the end of task {id} is not delivered");
                breaches.add(Promise::NothingLost, text);
            }
        }
    }
    for (id, life) in lives.iter().filter(|(id, _)| !explained.contains(id)) {
        let Some(delivery) = delivered(life) else {
            continue;
        };
        // The ends of a task that does not follow the rules are not known.
        if notified_of(delivery).is_none_or(|task| lives.contains_key(&task)) {
            let text = format!("no end of a task explains the delivery {id}");
            breaches.add(Promise::OneTask, text);
        }
    }
}

/// The delivery whose life this is, if it is one.
fn delivered(life: &Life) -> Option<&Task> {
    let first = life.changes.first()?;
    (first.after.as_deref()).filter(|_| first.step == Step::Delivered)
}

/// The task that a delivery is about.
fn notified_of(delivery: &Task) -> Option<TaskId> {
    let input = delivery.inline_input()?;
    let delivery: Delivery = serde_json::from_str(input.as_str()).ok()?;
    let notification: Notification<EndedTask> = serde_json::from_str(delivery.body.get()).ok()?;
    Some(notification.data.id)
}

/// Whether a task is a delivery.
pub(crate) fn is_of_webhook(task: &Task) -> bool {
    is_delivery(&task.task_type)
}
