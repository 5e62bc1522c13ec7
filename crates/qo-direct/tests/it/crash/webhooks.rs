//! Programs around tasks whose ends are delivered to webhooks. The checker knows the webhooks from the bucket, and expects a delivery of each
//! end.

use qo_core::transition::FailureKind;
use qo_core::{DocumentId, DocumentKind, Json, Status};
use qo_engine::Engine;
use qo_engine::api::{DocumentWrite, SubmitRequest, When};
use qo_store::runtime::RuntimeExt;

use super::scenario::expire;
use super::stage::{ProgramResult, Stage, expect_status, small};

/// Adds two webhooks, of which one is about another queue.
async fn webhooks(stage: &Stage) -> ProgramResult {
    for (name, queue) in [("billing", "default"), ("other", "nobody")] {
        let body = format!(
            r#"{{"url":"https://example.org/","events":["completed","failed","cancelled"],"queues":["{queue}"]}}"#
        );
        let id = DocumentId {
            kind: DocumentKind::Webhooks,
            name: name.parse().unwrap(),
        };
        let op = stage.actor.runtime.new_op_id();
        let write = DocumentWrite::new(id, None, Some(Json::parse(body).unwrap()), op);
        stage.actor.engine.write_document(write).await?;
    }
    Ok(())
}

pub(super) async fn webhook_complete(stage: &Stage) -> ProgramResult {
    webhooks(stage).await?;
    let task = stage.claimed().await?;
    stage.arm();
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

pub(super) async fn webhook_fail(stage: &Stage) -> ProgramResult {
    webhooks(stage).await?;
    let task = stage.claimed().await?;
    stage.arm();
    let failed = stage.actor.fail(&task, FailureKind::Permanent).await?;
    expect_status(&failed, Status::Failed)
}

pub(super) async fn webhook_cancel(stage: &Stage) -> ProgramResult {
    webhooks(stage).await?;
    let id = stage.submitted().await?;
    stage.arm();
    let cancelled = stage.actor.cancel(id).await?;
    expect_status(&cancelled, Status::Cancelled)
}

/// A claim finds a task that has expired, and ends it.
pub(super) async fn webhook_claim_expired(stage: &Stage) -> ProgramResult {
    webhooks(stage).await?;
    let request = SubmitRequest {
        expires: Some(When::InMillis(1_000)),
        ..stage.request()
    };
    stage.actor.submit(request).await?;
    stage.actor.sleep(3).await;
    stage.arm();
    for task in stage.actor.claim(10, 0).await? {
        stage.actor.complete(&task, small()).await?;
    }
    Ok(())
}

/// The lease reaper ends the attempt of a dead worker, and the next attempt completes.
pub(super) async fn webhook_lease_expiry(stage: &Stage) -> ProgramResult {
    webhooks(stage).await?;
    expire(stage, 3).await?;
    let task = stage.claim().await?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

/// The lease reaper ends the last attempt of a task: nobody reports that it failed.
pub(super) async fn webhook_dead_letter(stage: &Stage) -> ProgramResult {
    webhooks(stage).await?;
    expire(stage, 0).await?;
    Ok(())
}
