//! Programs around keys that are held for part of a task's life.

use qo_core::Json;
use qo_core::task::{KeyHold, OnConflict, Uniqueness};
use qo_engine::Engine;
use qo_engine::api::{SubmitRequest, When};

use super::stage::{ProgramResult, Stage, expect, small};

fn unique(stage: &Stage, hold: KeyHold, on_conflict: OnConflict) -> SubmitRequest {
    SubmitRequest {
        uniqueness: Uniqueness { hold, on_conflict },
        ..stage.keyed()
    }
}

fn with_input(request: SubmitRequest, text: &str) -> SubmitRequest {
    SubmitRequest {
        input: Json::parse(text).unwrap(),
        ..request
    }
}

pub(super) async fn unique_replace(stage: &Stage) -> ProgramResult {
    let request = unique(stage, KeyHold::Waiting, OnConflict::Replace);
    let first = stage.actor.submit(request).await?.task.id;
    stage.arm();
    let request = unique(stage, KeyHold::Waiting, OnConflict::Replace);
    let second = stage.actor.submit(with_input(request, "8")).await?;
    expect(second.duplicate && second.task.id == first, "the same task")?;
    let task = stage.claim().await?;
    let input = stage.actor.engine.input(&task).await;
    expect(
        input.is_ok_and(|input| input.as_str() == "8"),
        "the replaced input",
    )?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

pub(super) async fn unique_postpone(stage: &Stage) -> ProgramResult {
    let after = |millis| SubmitRequest {
        available: When::InMillis(millis),
        ..unique(stage, KeyHold::Waiting, OnConflict::ReplaceAndPostpone)
    };
    let first = stage.actor.submit(after(2_000)).await?.task.id;
    stage.arm();
    let second = stage.actor.submit(with_input(after(20_000), "8")).await?;
    expect(second.duplicate && second.task.id == first, "the same task")?;
    let task = stage.claim().await?;
    expect(
        task.started_at
            .is_some_and(|at| at >= second.task.available_at),
        "it when it was due",
    )?;
    stage.actor.complete(&task, small()).await?;
    Ok(())
}

pub(super) async fn unique_after_start(stage: &Stage) -> ProgramResult {
    let request = unique(stage, KeyHold::Waiting, OnConflict::Keep);
    stage.actor.submit(request).await?;
    let first = stage.claim().await?;
    stage.arm();
    let request = unique(stage, KeyHold::Waiting, OnConflict::Keep);
    let second = stage.actor.submit(request).await?;
    expect(
        !second.duplicate && second.task.id != first.id,
        "a second task",
    )?;
    stage.actor.complete(&first, small()).await?;
    stage.actor.complete(&stage.claim().await?, small()).await?;
    Ok(())
}

pub(super) async fn unique_after_end(stage: &Stage) -> ProgramResult {
    let request = unique(stage, KeyHold::Unfinished, OnConflict::Replace);
    stage.actor.submit(request).await?;
    let first = stage.claim().await?;
    stage.actor.complete(&first, small()).await?;
    stage.arm();
    let requests = (0..3).map(|number| {
        let request = unique(stage, KeyHold::Unfinished, OnConflict::Replace);
        stage.actor.submit(with_input(request, &number.to_string()))
    });
    let mut ids = std::collections::BTreeSet::new();
    for submitted in futures_util::future::join_all(requests).await {
        ids.insert(submitted?.task.id);
    }
    expect(ids.len() == 1 && !ids.contains(&first.id), "one new task")?;
    stage.actor.complete(&stage.claim().await?, small()).await?;
    Ok(())
}
