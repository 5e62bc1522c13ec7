//! Queues that rest.

use super::room::Room;
use crate::error::EngineError;

pub(super) async fn passes_a_paused_queue_by(room: &Room<'_>) {
    let (running, lease) = room.running().await;
    room.engine.pause(&room.queue).await.unwrap();
    room.engine.pause(&room.queue).await.unwrap();
    let task = room.submit_one().await;
    let other = room.another().await;
    // Every process passes it by, and says why.
    for engine in [&room.engine, &other] {
        let refusal = engine.claim(&room.wish(1)).await.unwrap_err();
        let queues = vec![room.queue.clone()];
        assert_eq!(refusal, EngineError::QueuePaused { queues });
    }
    let mut all_queues = room.wish(1);
    all_queues.queues.push("never-used".parse().unwrap());
    assert_eq!(other.claim(&all_queues).await.unwrap(), []);
    let stats = other.stats().await.unwrap();
    assert!(stats.queues[&room.queue].paused);

    // What was running goes on.
    room.engine.complete(running.id, lease, None).await.unwrap();

    room.engine.resume(&room.queue).await.unwrap();
    room.engine.resume(&room.queue).await.unwrap();
    let (claimed, _) = room.claim_one().await;
    assert_eq!(claimed.id, task.id);
    let stats = room.engine.stats().await.unwrap();
    assert!(!stats.queues[&room.queue].paused);
}
