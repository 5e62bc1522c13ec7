//! Paused queues and types.

use qo_core::{Actor, PauseNote, PauseTarget, TaskType};

use super::context::TestContext;
use crate::api::WaitReason;
use crate::error::EngineError;

pub(super) async fn skips_a_paused_queue(ctx: &TestContext<'_>) {
    let (running, lease) = ctx.running().await;
    ctx.engine.pause(&ctx.queue).await.unwrap();
    ctx.engine.pause(&ctx.queue).await.unwrap();
    let task = ctx.submit_one().await;
    let other = ctx.new_engine().await;
    // Every engine skips the queue and returns the reason.
    for engine in [&ctx.engine, &other] {
        let error = engine.claim(&ctx.claim_request(1)).await.unwrap_err();
        let (queues, types) = (vec![ctx.queue.clone()], vec![]);
        assert_eq!(error, EngineError::QueuePaused { queues, types });
        let reason = engine.waits_for(&task).await.unwrap();
        let Some(WaitReason::Paused {
            queue: Some(queue), ..
        }) = &reason
        else {
            panic!("a task of a paused queue waits for {reason:?}");
        };
        assert_eq!(*queue, ctx.queue);
    }
    let mut all_queues = ctx.claim_request(1);
    all_queues.queues.push("never-used".parse().unwrap());
    assert_eq!(other.claim(&all_queues).await.unwrap(), []);
    let stats = other.stats().await.unwrap();
    assert!(stats.queues[&ctx.queue].paused);

    // Running tasks are not affected.
    ctx.engine.complete(running.id, lease, None).await.unwrap();

    ctx.engine.resume(&ctx.queue).await.unwrap();
    ctx.engine.resume(&ctx.queue).await.unwrap();
    assert_eq!(ctx.engine.waits_for(&task).await.unwrap(), None);
    let (claimed, _) = ctx.claim_one().await;
    assert_eq!(claimed.id, task.id);
    let stats = ctx.engine.stats().await.unwrap();
    assert!(!stats.queues[&ctx.queue].paused);
}

pub(super) async fn skips_a_paused_type(ctx: &TestContext<'_>) {
    // The name is of this test alone, because other tests may share the store.
    let paused: TaskType = format!("paused-{}", ctx.queue).parse().unwrap();
    let target = PauseTarget::Type(paused.clone());
    let mut request = ctx.submit_request();
    request.task_type = paused.clone();
    let stopped = ctx.engine.submit(request).await.unwrap().task;
    let other = ctx.submit_one().await;
    let note = |reason: &str| {
        Some(PauseNote {
            by: Actor::from_text("ada@laptop"),
            reason: Some(reason.to_owned()),
        })
    };
    let set = |reason| ctx.engine.set_pause(&target, note(reason));
    set("the provider is down").await.unwrap();
    set("the provider is down").await.unwrap();
    set("the provider is slow").await.unwrap();

    let second = ctx.new_engine().await;
    let mut only = ctx.claim_request(2);
    only.types = vec![paused.clone()];
    let mut both = ctx.claim_request(2);
    both.types.push(paused.clone());
    // A new process knows the time of a store only to half a second at first, so for it the task may become due a little later.
    both.wait_ms = 5_000;
    let mut any = ctx.claim_request(2);
    any.types.clear();
    for engine in [&ctx.engine, &second] {
        let error = engine.claim(&only).await.unwrap_err();
        let (queues, types) = (vec![], vec![paused.clone()]);
        assert_eq!(error, EngineError::QueuePaused { queues, types });
        let pauses = engine.pauses().await.unwrap();
        let pause = pauses.get(&target).unwrap();
        assert_eq!(pause.reason.as_deref(), Some("the provider is slow"));
        assert_eq!(pause.by.as_ref().map(Actor::as_str), Some("ada@laptop"));
        assert!(pause.since.is_some());
        let reason = engine.waits_for(&stopped).await.unwrap();
        let text = reason.map(|reason| reason.to_string());
        let expected = format!("type {paused} is paused by ada@laptop: the provider is slow");
        assert_eq!(text, Some(expected));
        let stats = engine.stats().await.unwrap();
        assert_eq!(stats.pauses.get(&target), Some(pause));
        assert!(!stats.queues[&ctx.queue].paused);
    }
    // Other types of the queue are served, whether or not the claim names its types.
    let claimed = second.claim(&both).await.unwrap();
    assert_eq!(
        claimed.iter().map(|task| task.id).collect::<Vec<_>>(),
        [other.id]
    );
    assert_eq!(ctx.engine.claim(&any).await.unwrap(), []);

    ctx.engine.set_pause(&target, None).await.unwrap();
    ctx.engine.set_pause(&target, None).await.unwrap();
    assert!(second.pauses().await.unwrap().get(&target).is_none());
    let claimed = ctx.engine.claim(&only).await.unwrap();
    assert_eq!(
        claimed.iter().map(|task| task.id).collect::<Vec<_>>(),
        [stopped.id]
    );
}
