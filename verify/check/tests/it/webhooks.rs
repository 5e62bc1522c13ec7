//! Deliveries that are missing, and deliveries that nothing explains.

use qo_check::{Promise, StoredVersion};
use qo_core::task::encode;
use qo_core::transition::submit;
use qo_core::{Action, OpId, Task, Webhook, WebhookRules};

use crate::scene::{Scene, claim, complete, states, submission};

fn rules() -> WebhookRules {
    [(
        "hook".parse().unwrap(),
        Webhook::new("https://example.org/"),
    )]
    .into_iter()
    .collect()
}

/// A task that completes, and deliveries that have expired since.
fn scene(rules: WebhookRules, deliveries: &[Task]) -> Scene {
    let mut scene = Scene::of(submission(1), vec![claim(1), complete(1)]);
    scene.webhooks = rules;
    for delivery in deliveries {
        let [first, end] = delivered(delivery);
        scene.versions.insert(delivery.id, vec![first, end]);
    }
    scene
}

/// The task after it has completed.
fn completed() -> Task {
    let mut states = states(submission(1), vec![claim(1), complete(1)]);
    states.pop().unwrap()
}

/// The delivery of an end.
fn delivery_of(task: &Task) -> Task {
    let delivery = rules().deliveries(task).pop().unwrap();
    submit(delivery, OpId::from_random(2_000), task.updated_at).unwrap()
}

/// The versions of a delivery that was submitted, and expired.
fn delivered(delivery: &Task) -> [StoredVersion; 2] {
    let mut ended = delivery.clone();
    ended.expires_at = Some(delivery.created_at);
    let first = ended.clone();
    let command = qo_core::Command {
        op: OpId::from_random(2_001),
        action: Action::Expire,
    };
    ended
        .apply(command, delivery.created_at.plus_millis(1_000))
        .unwrap();
    [(first, 25), (ended, 26)].map(|(task, tick)| StoredVersion {
        at: task.updated_at,
        tick,
        body: Some(encode(&task).unwrap().into()),
        damaged: false,
    })
}

#[test]
fn an_end_that_is_delivered_breaks_nothing() {
    let scene = scene(rules(), &[delivery_of(&completed())]);
    let checked = scene.check();
    assert!(checked.breaches.is_empty(), "{}", checked.breaches);
    // The delivery itself is checked like any task.
    assert_eq!(checked.lives.len(), 2);
}

#[test]
fn an_end_that_is_not_delivered_is_found() {
    scene(rules(), &[]).finds(Promise::NothingLost, "is not delivered");
}

#[test]
fn an_end_that_was_overtaken_is_excused_only_where_deliveries_come_later() {
    let mut scene = Scene::of(submission(1), vec![claim(1), complete(1), Action::Archive]);
    scene.webhooks = rules();
    scene.finds(Promise::NothingLost, "is not delivered");
    scene.conditions.delivers_with_end = false;
    assert!(scene.broken().is_empty(), "{}", scene.check().breaches);
}

#[test]
fn a_second_delivery_of_one_end_is_found() {
    let mut other = completed();
    other.completed_at = Some(other.updated_at.plus_millis(1));
    let deliveries = [delivery_of(&completed()), delivery_of(&other)];
    scene(rules(), &deliveries).finds(Promise::OneTask, "explains the delivery");
}
