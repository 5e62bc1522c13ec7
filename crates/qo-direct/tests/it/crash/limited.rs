//! Programs around tasks with a limit. The checker knows the limits from the bucket.

use qo_core::transition::FailureKind;
use qo_core::{DocumentId, DocumentKind, Json, Task, TaskId};
use qo_engine::Engine;
use qo_engine::api::{DocumentWrite, SubmitRequest};
use qo_store::runtime::RuntimeExt;
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, Operation};

use super::checker::VICTIM;
use super::process::Process;
use super::stage::{ProgramResult, Stage, Unexpected, expect, small};
use super::strike::until_crashed;

/// Sets a limit of all tasks, before any is claimed.
async fn limit(stage: &Stage, name: &str, body: &str) -> ProgramResult {
    let id = DocumentId {
        kind: DocumentKind::Limits,
        name: name.parse().unwrap(),
    };
    let op = stage.actor.runtime.new_op_id();
    let write = DocumentWrite::new(id, None, Some(Json::parse(body).unwrap()), op);
    stage.actor.engine.write_document(write).await?;
    Ok(())
}

/// Kills a process at its first request of a kind.
fn crash_at(victim: &Process, operation: Operation, prefix: &str) {
    let rule = FaultRule::new(FaultKind::Crash, 1.0);
    let rule = rule.on([operation]).under([prefix]);
    victim.faults.set_plan(FaultPlan::none().with(rule));
}

async fn one_at_a_time(stage: &Stage) -> ProgramResult {
    limit(stage, "one", r#"{"queue":"default","concurrent":1}"#).await
}

async fn submit(stage: &Stage, count: usize) -> Result<Vec<TaskId>, Unexpected> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(stage.submitted().await?);
    }
    Ok(ids)
}

/// Claims all that can be claimed, and expects one task.
async fn claim_one(stage: &Stage, process: &Process) -> Result<Task, Unexpected> {
    for _ in 0..40 {
        let mut claimed = process.claim(10, 10_000).await?;
        if let Some(task) = claimed.pop() {
            expect(claimed.is_empty(), "one task")?;
            return Ok(task);
        }
        super::upkeep::check_leases(process).await?;
        super::upkeep::sweep_pass(process).await?;
    }
    let keys = stage.bucket.keys().await;
    Err(Unexpected(format!("nothing could be claimed: {keys:?}")))
}

async fn run_all(stage: &Stage, count: usize) -> ProgramResult {
    for _ in 0..count {
        let task = claim_one(stage, &stage.actor).await?;
        stage.actor.complete(&task, small()).await?;
    }
    Ok(())
}

pub(super) async fn limited_claim(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    submit(stage, 2).await?;
    stage.arm();
    run_all(stage, 2).await
}

pub(super) async fn limited_complete(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    submit(stage, 3).await?;
    let task = claim_one(stage, &stage.actor).await?;
    stage.arm();
    stage.actor.complete(&task, small()).await?;
    run_all(stage, 2).await
}

/// A release, a snooze and a failure return the slot.
pub(super) async fn limited_return(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    submit(stage, 2).await?;
    let task = claim_one(stage, &stage.actor).await?;
    stage.arm();
    stage.actor.release(&task).await?;
    let task = claim_one(stage, &stage.actor).await?;
    stage.actor.snooze(&task, 2_000).await?;
    let task = claim_one(stage, &stage.actor).await?;
    stage.actor.fail(&task, FailureKind::Retryable).await?;
    run_all(stage, 2).await
}

pub(super) async fn limited_lease_expiry(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    let request = SubmitRequest {
        max_retries: Some(0),
        ..stage.request()
    };
    stage.actor.submit(request).await?;
    submit(stage, 1).await?;
    let victim = stage.other(VICTIM, 2);
    expect(victim.claim(10, 5_000).await?.len() == 1, "one task")?;
    victim.kill();
    stage.actor.sleep(20).await;
    stage.arm();
    // Which of the two the victim had is unknown.
    let task = claim_one(stage, &stage.actor).await?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

/// A claimer dies after it took a slot, before it swapped the task.
pub(super) async fn limited_dead_claimer(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    submit(stage, 2).await?;
    let victim = stage.other(VICTIM, 2);
    crash_at(&victim, Operation::Put, "leases");
    let claimed = until_crashed(&victim.faults, victim.claim(10, 1_000)).await;
    expect(claimed.is_none(), "that the victim dies")?;
    let keys = stage.bucket.keys().await;
    expect(
        keys.contains(&"limits/one.json".to_owned()),
        "that a slot is taken",
    )?;
    victim.kill();
    stage.arm();
    run_all(stage, 2).await
}

/// A worker dies after it completed a task, before it returned the slot.
pub(super) async fn limited_dead_finisher(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    submit(stage, 2).await?;
    let victim = stage.other(VICTIM, 2);
    let task = claim_one(stage, &victim).await?;
    crash_at(&victim, Operation::Swap, "limits");
    let completed = until_crashed(&victim.faults, victim.complete(&task, small())).await;
    expect(completed.is_none(), "that the victim dies")?;
    let task = stage.actor.engine.get(task.id).await?;
    expect(task.status.is_terminal(), "that its task is completed")?;
    victim.kill();
    stage.arm();
    run_all(stage, 1).await
}

/// Two processes claim at once.
pub(super) async fn limited_race(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    submit(stage, 2).await?;
    let other = stage.other("other", 2);
    stage.arm();
    for _ in 0..2 {
        let (mine, theirs) =
            futures_util::future::join(stage.actor.claim(2, 1_000), other.claim(2, 1_000)).await;
        for task in mine? {
            stage.actor.complete(&task, small()).await?;
        }
        for task in theirs? {
            other.complete(&task, small()).await?;
        }
    }
    other.engine.close().await;
    Ok(())
}

pub(super) async fn limited_starts(stage: &Stage) -> ProgramResult {
    let body = r#"{"task_type":"job","starts":{"max":1,"window_ms":30000}}"#;
    limit(stage, "one", body).await?;
    submit(stage, 2).await?;
    stage.arm();
    run_all(stage, 2).await
}

/// Two limits apply to each task.
pub(super) async fn limited_twice(stage: &Stage) -> ProgramResult {
    one_at_a_time(stage).await?;
    let body = r#"{"limit_key":"k","concurrent":1,"starts":{"max":2,"window_ms":10000}}"#;
    limit(stage, "two", body).await?;
    for _ in 0..2 {
        let request = SubmitRequest {
            limit_key: Some("k".parse().unwrap()),
            ..stage.request()
        };
        stage.actor.submit(request).await?;
    }
    stage.arm();
    run_all(stage, 2).await
}
