//! Groups in direct mode: the rank in the ready index, and what it costs.

use std::time::Duration;

use qo_core::{Json, Task};
use qo_direct::{DirectConfig, DirectEngine, IndexMode};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_fixtures::Bucket;
use qo_store::runtime::Runtime;
use qo_store::wrap::Operation;

use crate::bucket::Engines as _;

fn of(group: &str) -> SubmitRequest {
    SubmitRequest {
        fairness_group: (!group.is_empty()).then(|| group.parse().unwrap()),
        ..SubmitRequest::new("job".parse().unwrap(), Json::null())
    }
}

async fn submit_many(engine: &DirectEngine, request: SubmitRequest, count: usize) {
    for submitted in engine.submit_many(vec![request; count]).await {
        submitted.unwrap();
    }
}

/// Claims in the order of the index, one by one: those of one claim start at the same time.
async fn claim(engine: &DirectEngine, count: usize) -> Vec<Task> {
    let mut request = ClaimRequest::new("w".parse().unwrap(), vec!["job".parse().unwrap()]);
    request.in_order = true;
    request.max = 1;
    let mut tasks = Vec::new();
    while tasks.len() < count {
        let claimed = engine.claim(&request).await.unwrap();
        assert!(!claimed.is_empty(), "{} of {count}", tasks.len());
        tasks.extend(claimed);
    }
    tasks
}

fn groups(tasks: &[Task]) -> Vec<&str> {
    let groups = tasks.iter().map(|task| task.fairness_group.as_ref());
    groups
        .map(|group| group.map_or("", |it| it.as_str()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_tasks_of_a_group_do_not_delay_the_first_of_another() {
    let bucket = Bucket::new();
    let (large, small, worker) = (bucket.engine(), bucket.engine(), bucket.engine());
    submit_many(&large, of("large"), 10_000).await;
    submit_many(&small, of("small"), 1).await;
    let first = claim(&worker, 10).await;
    let place = groups(&first).iter().position(|group| *group == "small");
    assert!(
        place.is_some_and(|place| place <= 1),
        "{:?}",
        groups(&first)
    );
    // Later, too, when the worker has replaced the page that it had listed.
    bucket.runtime.sleep(Duration::from_secs(6)).await;
    submit_many(&small, of("small"), 1).await;
    let next = claim(&worker, 10).await;
    let place = groups(&next).iter().position(|group| *group == "small");
    assert!(place.is_some_and(|place| place <= 1), "{:?}", groups(&next));
}

#[tokio::test(start_paused = true)]
async fn a_group_never_passes_the_tasks_without_one_by_more_than_its_turns() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    submit_many(&engine, of("large"), 200).await;
    bucket.runtime.sleep(Duration::from_secs(3)).await;
    submit_many(&engine, of(""), 20).await;
    // Three seconds are the ranks of three tasks.
    let served = claim(&engine, 30).await;
    let before = groups(&served)
        .iter()
        .take_while(|it| !it.is_empty())
        .count();
    assert!((2..=5).contains(&before), "{:?}", groups(&served));
    let plain = groups(&served).iter().filter(|it| it.is_empty()).count();
    assert_eq!(plain, 20, "{:?}", groups(&served));
}

#[tokio::test(start_paused = true)]
async fn a_group_costs_one_list_per_second_and_nothing_for_other_tasks() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let lists = || bucket.counts().of("ready", Operation::List).requests;
    submit_many(&engine, of(""), 50).await;
    assert_eq!(lists(), 0);
    for round in 1..=3 {
        submit_many(&engine, of("large"), 50).await;
        assert_eq!(lists(), round);
        bucket.runtime.sleep(Duration::from_millis(1_100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn entries_with_a_rank_are_moved_and_removed_like_others() {
    let bucket = Bucket::new();
    let engine = bucket.engine();
    let mut delayed = of("large");
    delayed.available = qo_engine::api::When::InMillis(2_000);
    delayed.limit_key = Some("account".parse().unwrap());
    submit_many(&engine, delayed, 3).await;
    submit_many(&engine, of("small"), 3).await;
    let early = claim(&engine, 3).await;
    assert_eq!(groups(&early), ["small"; 3]);
    bucket.runtime.sleep(Duration::from_secs(3)).await;
    let late = claim(&engine, 3).await;
    assert_eq!(groups(&late), ["large"; 3]);
    // One returns, and keeps its rank.
    let rank = late[1].fairness_rank;
    assert!(rank.is_some());
    let lease = late[1].lease_id.unwrap();
    engine.release(late[1].id, lease).await.unwrap();
    bucket.runtime.sleep(Duration::from_secs(1)).await;
    let again = claim(&engine, 1).await;
    assert_eq!((again[0].id, again[0].fairness_rank), (late[1].id, rank));
    for task in early
        .iter()
        .chain(&late)
        .filter(|task| task.id != late[1].id)
    {
        let lease = task.lease_id.unwrap();
        engine.complete(task.id, lease, None).await.unwrap();
    }
    let lease = again[0].lease_id.unwrap();
    engine.complete(again[0].id, lease, None).await.unwrap();
    engine.close().await;
    assert_eq!(bucket.keys("ready").await, Vec::<String>::new());
    assert_eq!(bucket.keys("later").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_an_index_groups_are_stored_and_served_without_turns() {
    let bucket = Bucket::new();
    let mut config = DirectConfig::local();
    config.index_mode = IndexMode::LogScan;
    let client = bucket.client_on(bucket.counted());
    let engine = DirectEngine::new(client, None, bucket.runtime.clone(), config);
    submit_many(&engine, of("large"), 5).await;
    let tasks = claim(&engine, 5).await;
    assert_eq!(groups(&tasks), ["large"; 5]);
    assert!(tasks.iter().all(|task| task.fairness_rank.is_none()));
}
