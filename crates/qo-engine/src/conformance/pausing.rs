//! Paused queues.

use super::context::TestContext;
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
        let queues = vec![ctx.queue.clone()];
        assert_eq!(error, EngineError::QueuePaused { queues });
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
    let (claimed, _) = ctx.claim_one().await;
    assert_eq!(claimed.id, task.id);
    let stats = ctx.engine.stats().await.unwrap();
    assert!(!stats.queues[&ctx.queue].paused);
}
