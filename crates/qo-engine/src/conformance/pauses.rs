//! Queues that rest.

use super::room::Room;

pub(super) async fn passes_a_paused_queue_by(room: &Room<'_>) {
    let (running, lease) = room.running().await;
    room.engine.pause(&room.queue).await.unwrap();
    room.engine.pause(&room.queue).await.unwrap();
    let task = room.submit_one().await;
    room.nothing_to_claim().await;
    let other = room.another().await;
    assert_eq!(
        other.claim(&room.wish(1)).await.unwrap(),
        [],
        "every process passes it by"
    );
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
