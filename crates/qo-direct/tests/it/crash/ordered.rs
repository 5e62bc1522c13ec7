//! Programs around tasks with an ordering key.

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::FailureKind;
use qo_core::{Status, Task, TaskId};
use qo_engine::Engine;
use qo_engine::api::{SubmitRequest, When};

use super::checker::VICTIM;
use super::stage::{ProgramResult, Stage, Unexpected, expect, expect_status, small};

fn ordered(stage: &Stage, on_failure: OnFailure) -> SubmitRequest {
    SubmitRequest {
        ordering: Some(OrderingRule {
            key: "account 17".parse().unwrap(),
            on_failure,
        }),
        ..stage.request()
    }
}

async fn submit_line(
    stage: &Stage,
    count: usize,
    on_failure: OnFailure,
) -> Result<Vec<TaskId>, Unexpected> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let submitted = stage.actor.submit(ordered(stage, on_failure)).await?;
        ids.push(submitted.task.id);
    }
    Ok(ids)
}

/// Claims all that can be claimed, and expects this task alone.
async fn claim_only(stage: &Stage, expected: TaskId) -> Result<Task, Unexpected> {
    for _ in 0..40 {
        let mut claimed = stage.actor.claim(10, 10_000).await?;
        if let Some(task) = claimed.pop() {
            expect(
                task.id == expected && claimed.is_empty(),
                format_args!(
                    "only {expected}, not {} and {} more",
                    task.id,
                    claimed.len()
                ),
            )?;
            return Ok(task);
        }
        super::upkeep::check_leases(&stage.actor).await?;
        super::upkeep::sweep_pass(&stage.actor).await?;
    }
    Err(Unexpected(format!("{expected} could not be claimed")))
}

async fn run_all(stage: &Stage, ids: &[TaskId]) -> ProgramResult {
    for id in ids {
        let task = claim_only(stage, *id).await?;
        stage.actor.complete(&task, small()).await?;
    }
    Ok(())
}

pub(super) async fn ordered_submit(stage: &Stage) -> ProgramResult {
    stage.arm();
    let ids = submit_line(stage, 2, OnFailure::Continue).await?;
    run_all(stage, &ids).await
}

pub(super) async fn ordered_submit_concurrently(stage: &Stage) -> ProgramResult {
    stage.arm();
    let submits = (0..3).map(|_| stage.actor.submit(ordered(stage, OnFailure::Continue)));
    for submitted in futures_util::future::join_all(submits).await {
        expect(!submitted?.duplicate, "a new task")?;
    }
    Ok(())
}

pub(super) async fn ordered_complete(stage: &Stage) -> ProgramResult {
    let ids = submit_line(stage, 3, OnFailure::Continue).await?;
    let head = claim_only(stage, ids[0]).await?;
    stage.arm();
    let head = stage.actor.complete(&head, small()).await?;
    expect_status(&head, Status::Completed)?;
    run_all(stage, &ids[1..]).await
}

pub(super) async fn ordered_retry(stage: &Stage) -> ProgramResult {
    let ids = submit_line(stage, 2, OnFailure::Continue).await?;
    let head = claim_only(stage, ids[0]).await?;
    stage.arm();
    stage.actor.fail(&head, FailureKind::Retryable).await?;
    let head = claim_only(stage, ids[0]).await?;
    stage.actor.snooze(&head, 2_000).await?;
    run_all(stage, &ids).await
}

pub(super) async fn ordered_cancel(stage: &Stage) -> ProgramResult {
    let ids = submit_line(stage, 4, OnFailure::Continue).await?;
    stage.arm();
    stage.actor.cancel(ids[2]).await?;
    stage.actor.cancel(ids[0]).await?;
    run_all(stage, &[ids[1], ids[3]]).await
}

pub(super) async fn ordered_expiry(stage: &Stage) -> ProgramResult {
    let request = SubmitRequest {
        expires: Some(When::InMillis(5_000)),
        ..ordered(stage, OnFailure::Continue)
    };
    stage.actor.submit(request).await?;
    let next = submit_line(stage, 1, OnFailure::Continue).await?;
    stage.actor.sleep(6).await;
    stage.arm();
    run_all(stage, &next).await
}

pub(super) async fn ordered_lease_expiry(stage: &Stage) -> ProgramResult {
    let request = SubmitRequest {
        max_retries: Some(0),
        ..ordered(stage, OnFailure::Continue)
    };
    stage.actor.submit(request).await?;
    let next = submit_line(stage, 1, OnFailure::Continue).await?;
    let victim = stage.other(VICTIM, 2);
    expect(victim.claim(10, 5_000).await?.len() == 1, "one task")?;
    victim.kill();
    stage.actor.sleep(20).await;
    stage.arm();
    run_all(stage, &next).await
}

async fn stopped(stage: &Stage) -> Result<Vec<TaskId>, Unexpected> {
    let ids = submit_line(stage, 2, OnFailure::Stop).await?;
    let head = claim_only(stage, ids[0]).await?;
    stage.arm();
    let failed = stage.actor.fail(&head, FailureKind::Permanent).await?;
    expect_status(&failed, Status::Failed)?;
    let claimed = stage.actor.claim(10, 0).await?;
    expect(claimed.is_empty(), "that the key is stopped")?;
    Ok(ids)
}

pub(super) async fn ordered_stop_and_replay(stage: &Stage) -> ProgramResult {
    let ids = stopped(stage).await?;
    stage.actor.replay(ids[0]).await?;
    run_all(stage, &ids).await
}

pub(super) async fn ordered_stop_and_cancel(stage: &Stage) -> ProgramResult {
    let ids = stopped(stage).await?;
    stage.actor.cancel(ids[0]).await?;
    run_all(stage, &ids[1..]).await
}

pub(super) async fn ordered_replay(stage: &Stage) -> ProgramResult {
    let ids = submit_line(stage, 3, OnFailure::Continue).await?;
    run_all(stage, &ids[..1]).await?;
    stage.arm();
    let task = stage.actor.replay(ids[0]).await?;
    expect_status(&task, Status::Pending)?;
    run_all(stage, &[ids[1], ids[2], ids[0]]).await
}

/// The head fails, and is purged before the next one runs.
pub(super) async fn ordered_purge(stage: &Stage) -> ProgramResult {
    let ids = submit_line(stage, 2, OnFailure::Continue).await?;
    let head = claim_only(stage, ids[0]).await?;
    stage.arm();
    stage.actor.fail(&head, FailureKind::Permanent).await?;
    stage.actor.purge(ids[0]).await?;
    let gone = stage.actor.engine.get(ids[0]).await;
    expect(
        gone.is_err_and(|error| error.is_not_found()),
        "that the task is gone",
    )?;
    run_all(stage, &ids[1..]).await
}

/// The sweeper's requests fail while it finds the head of a line without its entry.
pub(super) async fn ordered_sweep(stage: &Stage) -> ProgramResult {
    let victim = stage.other(VICTIM, 3);
    for _ in 0..3 {
        victim.submit(ordered(stage, OnFailure::Continue)).await?;
    }
    victim.kill();
    for key in stage.bucket.keys().await {
        if key.starts_with("ready/") {
            stage.bucket.remove(&key).await;
        }
    }
    stage.arm();
    for _ in 0..2 {
        stage.actor.sleep(60).await;
        super::upkeep::sweep_pass(&stage.actor).await?;
    }
    Ok(())
}
