//! Short programs, each around one operation.
//!
//! A program prepares what it needs, arms the faults, runs its operation and continues as a caller would. Without a fault, or
//! with one that passes, every call must get the expected reply.

use std::time::Duration;

use qo_core::transition::FailureKind;
use qo_core::{QueueName, Status, TaskId};
use qo_engine::Engine;
use qo_engine::api::{IdempotencyRequest, SubmitRequest, When};
use qo_store::wrap::FaultKind;

use super::checker::VICTIM;
use super::limited::{
    limited_claim, limited_complete, limited_dead_claimer, limited_dead_finisher,
    limited_lease_expiry, limited_race, limited_return, limited_starts, limited_twice,
};
use super::ordered::{
    ordered_cancel, ordered_complete, ordered_expiry, ordered_lease_expiry, ordered_purge,
    ordered_replay, ordered_retry, ordered_stop_and_cancel, ordered_stop_and_replay,
    ordered_submit, ordered_submit_concurrently, ordered_sweep,
};
use super::stage::{ProgramResult, Stage, Unexpected, expect, expect_status, large, small};

use super::unique::{unique_after_end, unique_after_start, unique_postpone, unique_replace};
use super::webhooks::{
    webhook_cancel, webhook_claim_expired, webhook_complete, webhook_dead_letter, webhook_fail,
    webhook_lease_expiry,
};

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        /// The programs, by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "each is the name of a function")]
        pub(super) enum Scenario { $($name),* }

        impl Scenario {
            /// Runs the program.
            pub(super) async fn play(self, stage: &Stage) -> ProgramResult {
                match self { $(Self::$name => $name(stage).await?),* }
                stage.finished().await;
                assert!(stage.is_armed(), "{self:?} never armed the faults");
                Ok(())
            }
        }

        /// One test per program, so that they run in parallel and can be run alone.
        mod systematic {
            $(#[test]
            fn $name() {
                super::super::strike::strike_everywhere(super::Scenario::$name);
            })*
        }
    };
}

scenarios![
    submit,
    submit_large,
    submit_delayed,
    submit_many,
    submit_twice_with_one_key,
    submit_twice_with_one_id,
    submit_after_the_keys_window,
    claim_one_of_three,
    claim_when_due,
    claim_expired,
    complete,
    complete_large,
    retry,
    fail_for_good,
    renew,
    lease_expiry,
    lease_expiry_to_failed,
    cancel_pending,
    cancel_running,
    snooze,
    release,
    replay,
    redrive_due,
    redrive_delayed,
    redrive_failed,
    redrive_and_back,
    archive,
    unarchive,
    purge,
    purge_frees_the_key,
    versioned_purge,
    versioned_purge_frees_the_key,
    pause,
    sweep,
    ordered_submit,
    ordered_submit_concurrently,
    ordered_complete,
    ordered_retry,
    ordered_cancel,
    ordered_expiry,
    ordered_lease_expiry,
    ordered_stop_and_replay,
    ordered_stop_and_cancel,
    ordered_replay,
    ordered_purge,
    ordered_sweep,
    unique_replace,
    unique_postpone,
    unique_after_start,
    unique_after_end,
    limited_claim,
    limited_complete,
    limited_return,
    limited_lease_expiry,
    limited_dead_claimer,
    limited_dead_finisher,
    limited_race,
    limited_starts,
    limited_twice,
    webhook_complete,
    webhook_fail,
    webhook_cancel,
    webhook_claim_expired,
    webhook_lease_expiry,
    webhook_dead_letter,
];

async fn submit(stage: &Stage) -> ProgramResult {
    stage.arm();
    let submitted = stage.actor.submit(stage.request()).await?;
    expect(!submitted.duplicate, "a new task")
}

async fn submit_large(stage: &Stage) -> ProgramResult {
    stage.arm();
    let request = SubmitRequest {
        input: large("in"),
        ..stage.request()
    };
    let submitted = stage.actor.submit(request).await?;
    expect(!submitted.duplicate, "a new task")
}

async fn submit_delayed(stage: &Stage) -> ProgramResult {
    stage.arm();
    let request = SubmitRequest {
        available: When::InMillis(40_000),
        ..stage.request()
    };
    let submitted = stage.actor.submit(request).await?;
    expect_status(&submitted.task, Status::Pending)
}

async fn submit_many(stage: &Stage) -> ProgramResult {
    stage.arm();
    let submits = (0..4).map(|_| stage.actor.submit(stage.request()));
    for submitted in futures_util::future::join_all(submits).await {
        expect(!submitted?.duplicate, "a new task")?;
    }
    Ok(())
}

async fn submit_twice_with_one_key(stage: &Stage) -> ProgramResult {
    stage.arm();
    let first = stage.actor.submit(stage.keyed()).await?;
    let second = stage.actor.submit(stage.keyed()).await?;
    expect(!first.duplicate, "a new task")?;
    expect(
        second.duplicate && second.task.id == first.task.id,
        "the same task",
    )
}

async fn submit_twice_with_one_id(stage: &Stage) -> ProgramResult {
    stage.arm();
    let request = stage.request();
    let first = stage.actor.submit(request.clone()).await?;
    let second = stage.actor.submit(request).await?;
    expect(!first.duplicate && second.duplicate, "one task")
}

async fn submit_after_the_keys_window(stage: &Stage) -> ProgramResult {
    let mut request = stage.request();
    request.idempotency = Some(IdempotencyRequest {
        key: "windowed".parse().unwrap(),
        scope: qo_core::task::IdempotencyScope::Global,
        window_ms: Some(5_000),
    });
    let first = stage.actor.submit(request.clone()).await?;
    stage.actor.sleep(6).await;
    request.id = stage.request().id;
    stage.arm();
    let second = stage.actor.submit(request).await?;
    expect(
        !second.duplicate && first.task.id != second.task.id,
        "a second task",
    )
}

async fn claim_one_of_three(stage: &Stage) -> ProgramResult {
    for _ in 0..3 {
        stage.submitted().await?;
    }
    stage.arm();
    let task = stage.claim().await?;
    expect_status(&task, Status::Running)?;
    for _ in 0..2 {
        stage.actor.complete(&stage.claim().await?, small()).await?;
    }
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

async fn claim_when_due(stage: &Stage) -> ProgramResult {
    let request = SubmitRequest {
        available: When::InMillis(5_000),
        ..stage.request()
    };
    stage.actor.submit(request).await?;
    stage.arm();
    let task = stage.claim().await?;
    // Only a stale list may delay it until the fallback interval.
    let stale = stage
        .plan
        .script
        .values()
        .any(|kind| *kind == FaultKind::StaleList);
    let waited = stage.actor.engine.now().since(task.available_at);
    expect(
        waited < Duration::from_secs(if stale { 75 } else { 12 }),
        format_args!("it soon after it was due, not after {waited:?}"),
    )?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

async fn claim_expired(stage: &Stage) -> ProgramResult {
    let request = SubmitRequest {
        expires: Some(When::InMillis(5_000)),
        ..stage.request()
    };
    let id = stage.actor.submit(request).await?.task.id;
    stage.actor.sleep(6).await;
    stage.arm();
    expect(stage.actor.claim(1, 0).await?.is_empty(), "nothing")?;
    stage.actor.sleep(1).await;
    let task = stage.actor.engine.get(id).await?;
    // A stale list does not show it. Then the next poll cancels it.
    expect(task.attempt == 0, "no attempt")
}

async fn complete(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    let task = stage.actor.complete(&task, small()).await?;
    expect_status(&task, Status::Completed)
}

async fn complete_large(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    let task = stage.actor.complete(&task, large("out")).await?;
    expect_status(&task, Status::Completed)?;
    let output = stage.actor.engine.output(&task).await?;
    expect(output == Some(large("out")), "the whole output")
}

async fn retry(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    let failed = stage.actor.fail(&task, FailureKind::Retryable).await?;
    expect_status(&failed, Status::Pending)?;
    let again = stage.claim().await?;
    expect(again.attempt == 2, "attempt 2")?;
    stage.actor.complete(&again, small()).await?;
    Ok(())
}

async fn fail_for_good(stage: &Stage) -> ProgramResult {
    let request = SubmitRequest {
        max_retries: Some(0),
        ..stage.request()
    };
    stage.actor.submit(request).await?;
    let first = stage.claim().await?;
    let second = stage.claimed().await?;
    stage.arm();
    let first = stage.actor.fail(&first, FailureKind::Retryable).await?;
    let second = stage.actor.fail(&second, FailureKind::Permanent).await?;
    expect_status(&first, Status::Failed)?;
    expect_status(&second, Status::Failed)
}

async fn renew(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    for _ in 0..3 {
        // The minute in which the lease expires changes meanwhile.
        stage.actor.sleep(12).await;
        let renewed = stage.actor.renew(&task).await?;
        expect(
            renewed.lease_expires_at > task.lease_expires_at,
            "a later end",
        )?;
    }
    stage.actor.progress(&task).await?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

async fn lease_expiry(stage: &Stage) -> ProgramResult {
    expire(stage, 3).await?;
    let again = stage.claim().await?;
    expect(again.attempt == 2, "attempt 2")?;
    stage.actor.complete(&again, small()).await?;
    Ok(())
}

async fn lease_expiry_to_failed(stage: &Stage) -> ProgramResult {
    let id = expire(stage, 0).await?;
    let task = stage.actor.engine.get(id).await?;
    expect_status(&task, Status::Failed)
}

/// A worker dies with a task, and the actor's monitor expires the lease.
pub(super) async fn expire(stage: &Stage, max_retries: u32) -> Result<TaskId, Unexpected> {
    let request = SubmitRequest {
        max_retries: Some(max_retries),
        ..stage.request()
    };
    let id = stage.actor.submit(request).await?.task.id;
    let victim = stage.other(VICTIM, 2);
    // Its clock may be a little behind that of the submitter.
    expect(victim.claim(1, 10_000).await?.len() == 1, "one task")?;
    victim.kill();
    stage.actor.sleep(20).await;
    stage.arm();
    for _ in 0..10 {
        stage.actor.sleep(10).await;
        super::upkeep::check_leases(&stage.actor).await?;
        if stage.actor.engine.get(id).await?.status != Status::Running {
            return Ok(id);
        }
    }
    Err(Unexpected("the lease never ended".to_owned()))
}

async fn cancel_pending(stage: &Stage) -> ProgramResult {
    let id = stage.submitted().await?;
    stage.arm();
    let task = stage.actor.cancel(id).await?;
    expect_status(&task, Status::Cancelled)
}

async fn cancel_running(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    let asked = stage.actor.cancel(task.id).await?;
    expect(asked.cancel_requested, "a request")?;
    let renewed = stage.actor.renew(&task).await?;
    expect(renewed.cancel_requested, "that the worker is told")?;
    let ended = stage.actor.fail(&task, FailureKind::Cancelled).await?;
    expect_status(&ended, Status::Cancelled)
}

async fn snooze(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    let snoozed = stage.actor.snooze(&task, 5_000).await?;
    expect_status(&snoozed, Status::Pending)?;
    let again = stage.claim().await?;
    expect(again.retry_count == 0, "no counted retry")?;
    stage.actor.complete(&again, small()).await?;
    Ok(())
}

async fn release(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.arm();
    let released = stage.actor.release(&task).await?;
    expect_status(&released, Status::Pending)?;
    let again = stage.claim().await?;
    stage.actor.complete(&again, small()).await?;
    Ok(())
}

async fn replay(stage: &Stage) -> ProgramResult {
    let task = stage.completed(stage.request()).await?;
    stage.arm();
    let task = stage.actor.replay(task.id).await?;
    expect_status(&task, Status::Pending)?;
    let again = stage.claim().await?;
    expect(again.attempt == 2, "attempt 2")?;
    stage.actor.complete(&again, large("again")).await?;
    Ok(())
}

async fn redrive_due(stage: &Stage) -> ProgramResult {
    let id = stage.actor.submit(stage.keyed()).await?.task.id;
    stage.arm();
    let task = stage.actor.redrive(id, "elsewhere").await?;
    expect_status(&task, Status::Pending)?;
    let again = stage.actor.submit(stage.keyed()).await?;
    expect(
        again.duplicate && again.task.id == id,
        "the key in the queue of the submit",
    )?;
    let task = stage.claim().await?;
    expect(task.queue.as_str() == "elsewhere", "the other queue")?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

async fn redrive_delayed(stage: &Stage) -> ProgramResult {
    let request = SubmitRequest {
        available: When::InMillis(20_000),
        ..stage.request()
    };
    let submitted = stage.actor.submit(request).await?.task;
    stage.arm();
    let task = stage.actor.redrive(submitted.id, "elsewhere").await?;
    expect_status(&task, Status::Pending)?;
    let task = stage.claim().await?;
    expect(
        task.started_at
            .is_some_and(|at| at > submitted.available_at),
        "it when it was due",
    )?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

async fn redrive_failed(stage: &Stage) -> ProgramResult {
    let task = stage.claimed().await?;
    stage.actor.fail(&task, FailureKind::Permanent).await?;
    stage.arm();
    let task = stage.actor.redrive(task.id, "elsewhere").await?;
    expect_status(&task, Status::Pending)?;
    let again = stage.claim().await?;
    expect(again.attempt == 2, "attempt 2")?;
    stage.actor.complete(&again, small()).await?;
    Ok(())
}

async fn redrive_and_back(stage: &Stage) -> ProgramResult {
    let id = stage.submitted().await?;
    stage.arm();
    stage.actor.redrive(id, "elsewhere").await?;
    stage.actor.redrive(id, "default").await?;
    let task = stage.claim().await?;
    expect(task.queue.as_str() == "default", "its first queue")?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

async fn archive(stage: &Stage) -> ProgramResult {
    let task = stage.completed(stage.request()).await?;
    stage.arm();
    let task = stage.actor.archive(task.id).await?;
    expect_status(&task, Status::Archived)
}

async fn unarchive(stage: &Stage) -> ProgramResult {
    let task = stage.completed(stage.request()).await?;
    stage.actor.archive(task.id).await?;
    stage.arm();
    let task = stage.actor.unarchive(task.id).await?;
    expect_status(&task, Status::Completed)
}

async fn purge(stage: &Stage) -> ProgramResult {
    let task = stage.completed(stage.request()).await?;
    stage.actor.engine.close().await;
    stage.arm();
    stage.actor.purge(task.id).await?;
    let gone = stage.actor.engine.get(task.id).await;
    expect(
        gone.is_err_and(|error| error.is_not_found()),
        "that the task is gone",
    )
}

async fn purge_frees_the_key(stage: &Stage) -> ProgramResult {
    let first = stage.completed(stage.keyed()).await?;
    stage.actor.engine.close().await;
    stage.arm();
    stage.actor.purge(first.id).await?;
    let second = stage.actor.submit(stage.keyed()).await?;
    expect(!second.duplicate, "a new task")?;
    // Requests in flight have arrived by now, and must not have taken the key from the second task.
    stage.actor.sleep(60).await;
    let third = stage.actor.submit(stage.keyed()).await?;
    expect(
        third.duplicate && third.task.id == second.task.id,
        "the second task",
    )
}

async fn versioned_purge(stage: &Stage) -> ProgramResult {
    purge(stage).await
}

async fn versioned_purge_frees_the_key(stage: &Stage) -> ProgramResult {
    purge_frees_the_key(stage).await
}

impl Scenario {
    /// Whether the bucket keeps versions.
    pub(super) fn keeps_versions(self) -> bool {
        matches!(
            self,
            Self::versioned_purge | Self::versioned_purge_frees_the_key
        )
    }
}

async fn pause(stage: &Stage) -> ProgramResult {
    let queue = QueueName::default();
    stage.submitted().await?;
    stage.arm();
    stage.actor.engine.pause(&queue).await?;
    expect(stage.actor.claim(1, 0).await?.is_empty(), "nothing")?;
    stage.actor.engine.resume(&queue).await?;
    let task = stage.claim().await?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

/// The sweeper's requests fail while it repairs what a dead submitter and a dead worker left.
async fn sweep(stage: &Stage) -> ProgramResult {
    let victim = stage.other(VICTIM, 3);
    victim.submit(stage.request()).await?;
    victim.submit(stage.request()).await?;
    expect(victim.claim(1, 0).await?.len() == 1, "one task")?;
    victim.kill();
    for key in stage.bucket.keys().await {
        if key.starts_with("ready/") || key.starts_with("leases/") {
            stage.bucket.remove(&key).await;
        }
    }
    stage.arm();
    super::upkeep::sweep_pass(&stage.actor).await?;
    stage.actor.sleep(60).await;
    super::upkeep::sweep_pass(&stage.actor).await?;
    Ok(())
}
