//! Webhooks: the deliveries that ends of tasks submit.

use std::collections::BTreeMap;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::FailureKind;
use qo_core::webhook::delivery::{self, Delivery, EndedTask, Notification};
use qo_core::{DocumentId, DocumentKind, Status, Task, TaskId};
use qo_store::runtime::RuntimeExt;

use super::context::{TestContext, failure, json, name};
use crate::api::{Document, DocumentQuery, DocumentWrite, TaskFilter, TaskQuery};
use crate::error::EngineError;

fn webhook_id(ctx: &TestContext<'_>) -> DocumentId {
    DocumentId {
        kind: DocumentKind::Webhooks,
        name: name(ctx.worker.as_str()),
    }
}

/// Writes a webhook for the check's queue. Returns `None` if the engine has no webhooks, because it divides the queue over others.
async fn set_webhook(ctx: &TestContext<'_>, events: &str) -> Option<Document> {
    let body = format!(
        r#"{{"url":"https://example.org/{}","events":{events},"queues":["{}"],"secret":"whsec_{}"}}"#,
        ctx.worker,
        ctx.queue,
        "A".repeat(32),
    );
    let op = ctx.harness.runtime().new_op_id();
    let write = DocumentWrite::new(webhook_id(ctx), None, Some(json(&body)), op);
    match ctx.engine.write_document(write).await {
        Ok(written) => written,
        Err(EngineError::BadRequest(reason)) if reason.contains("partitioned") => None,
        Err(error) => panic!("{error}"),
    }
}

/// The deliveries of the check's webhook, by the task that each is about.
async fn deliveries(ctx: &TestContext<'_>) -> BTreeMap<TaskId, (Task, Notification<EndedTask>)> {
    let filter = TaskFilter {
        queue: Some(name(delivery::QUEUE)),
        tag: delivery::tag(&webhook_id(ctx).name),
        ..TaskFilter::default()
    };
    let page = ctx.engine.list(TaskQuery::first(&filter, 100)).await;
    let mut found = BTreeMap::new();
    for task in page.unwrap().tasks {
        let input = ctx.engine.input(&task).await.unwrap();
        let delivery: Delivery = serde_json::from_str(input.as_str()).unwrap();
        assert_eq!(delivery.webhook, webhook_id(ctx).name);
        let body: Notification<EndedTask> = serde_json::from_str(delivery.body.get()).unwrap();
        let before = found.insert(body.data.id, (task, body));
        assert!(before.is_none(), "two deliveries of one end");
    }
    found
}

pub(super) async fn submits_a_delivery_for_each_end(ctx: &TestContext<'_>) {
    let all = r#"["completed","failed","cancelled"]"#;
    let Some(webhook) = set_webhook(ctx, all).await else {
        return;
    };
    let completed = ctx.completed().await;
    let (failed, lease) = ctx.running().await;
    let error = failure(FailureKind::Permanent, "no such user");
    ctx.engine.fail(failed.id, lease, error).await.unwrap();
    let cancelled = ctx.submit_one().await;
    ctx.engine.cancel(cancelled.id, None).await.unwrap();
    // A retry is no end, and other queues are not named.
    let (released, lease) = ctx.running().await;
    ctx.engine.release(released.id, lease).await.unwrap();
    let mut elsewhere = ctx.submit_request();
    elsewhere.queue = name(&format!("{}.other", ctx.worker));
    let elsewhere = ctx.submit(elsewhere).await;
    ctx.engine.cancel(elsewhere.id, None).await.unwrap();

    let found = deliveries(ctx).await;
    let ends = [
        (completed.id, Status::Completed, "task.completed"),
        (failed.id, Status::Failed, "task.failed"),
        (cancelled.id, Status::Cancelled, "task.cancelled"),
    ];
    assert_eq!(found.len(), ends.len());
    for (id, status, event) in ends {
        let (task, body) = &found[&id];
        assert_eq!(task.status, Status::Pending);
        assert_eq!(task.task_type.as_str(), delivery::TASK_TYPE);
        assert_eq!(task.max_retries, delivery::RETRIES);
        assert_eq!((body.event.as_str(), body.data.status), (event, status));
        assert_eq!(body.data.queue, ctx.queue);
    }
    assert_eq!(
        found[&failed.id].1.data.error.as_deref(),
        Some("no such user")
    );

    // Archiving is no other end. A replayed task ends once more.
    ctx.engine.archive(completed.id).await.unwrap();
    ctx.engine.unarchive(completed.id).await.unwrap();
    assert_eq!(deliveries(ctx).await.len(), ends.len());
    let first = found[&failed.id].0.id;
    ctx.engine.purge(first).await.unwrap_err();
    ctx.engine.cancel(first, None).await.unwrap();
    ctx.engine.purge(first).await.unwrap();
    ctx.engine.replay(failed.id).await.unwrap();
    ctx.engine.cancel(failed.id, None).await.unwrap();
    let again = deliveries(ctx).await;
    assert_eq!(again.len(), ends.len());
    assert_ne!(again[&failed.id].0.id, first);

    // The end of a delivery has no delivery, and neither has anything once the webhook is removed.
    let op = ctx.harness.runtime().new_op_id();
    let removal = DocumentWrite::new(webhook_id(ctx), Some(webhook.version), None, op);
    ctx.engine.write_document(removal).await.unwrap();
    let late = ctx.submit_one().await;
    ctx.engine.cancel(late.id, None).await.unwrap();
    for (task, _) in again.values() {
        ctx.engine.cancel(task.id, None).await.unwrap();
    }
    assert_eq!(deliveries(ctx).await.len(), ends.len());
}

pub(super) async fn delivers_the_end_of_a_task_that_killed_its_worker(ctx: &TestContext<'_>) {
    if set_webhook(ctx, r#"["failed"]"#).await.is_none() {
        return;
    }
    // Another process learns of the webhook within a few seconds.
    ctx.sleep(std::time::Duration::from_secs(8)).await;
    let task = ctx.submit_with_instant_retry(0).await;
    let (claimed, _) = ctx.claim_as_dying_worker().await;
    assert_eq!(claimed.id, task.id);
    let ended = ctx.maintain_until_not_running(task.id).await;
    assert_eq!(ended.status, Status::Failed);
    let found = ctx
        .poll_until("the end is delivered", async || {
            ctx.harness.maintain().await;
            deliveries(ctx).await.remove(&task.id)
        })
        .await;
    assert_eq!(found.1.event, "task.failed");
}

/// A failed task that stops its ordering key ends once more when it is cancelled.
pub(super) async fn delivers_the_cancel_of_a_task_that_stops_its_key(ctx: &TestContext<'_>) {
    if set_webhook(ctx, r#"["cancelled"]"#).await.is_none() {
        return;
    }
    let mut request = ctx.submit_request();
    request.ordering = Some(OrderingRule {
        key: name("stops"),
        on_failure: OnFailure::Stop,
    });
    let task = ctx.submit(request).await;
    let (_, lease) = ctx.claim_one().await;
    let error = failure(FailureKind::Permanent, "no such user");
    ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert!(deliveries(ctx).await.is_empty());
    ctx.engine.cancel(task.id, None).await.unwrap();
    let found = deliveries(ctx).await;
    assert_eq!(found[&task.id].1.event, "task.cancelled");
    // Whoever repairs the end of a task finds this delivery.
    ctx.harness.maintain().await;
    assert_eq!(deliveries(ctx).await.len(), 1);
}

pub(super) async fn refuses_invalid_webhooks(ctx: &TestContext<'_>) {
    for body in [
        "{}",
        r#"{"url":"ftp://example.org/"}"#,
        r#"{"url":"https://user:password@example.org/"}"#,
        r#"{"url":"https://example.org/","events":[]}"#,
        r#"{"url":"https://example.org/","secret":"short"}"#,
        r#"{"url":"https://example.org/","retries":3}"#,
    ] {
        let op = ctx.harness.runtime().new_op_id();
        let write = DocumentWrite::new(webhook_id(ctx), None, Some(json(body)), op);
        let error = ctx.engine.write_document(write).await.unwrap_err();
        assert!(
            matches!(error, EngineError::BadRequest(_)),
            "{body}: {error}"
        );
    }
    let query = DocumentQuery::one(&webhook_id(ctx));
    assert_eq!(ctx.engine.documents(&query).await.unwrap(), []);
}
