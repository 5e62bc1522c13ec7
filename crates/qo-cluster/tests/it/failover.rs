//! Nodes that are killed and restarted.

use std::time::Duration;

use qo_core::{Status, TaskId};
use qo_engine::EngineError;
use qo_engine::api::{IdempotencyRequest, TaskFilter, TaskQuery};

use crate::cluster::{TestCluster, claim, cut_often, drain, eventually, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_loses_nothing_that_it_acknowledged() {
    let mut cluster = TestCluster::start(3, |_| {}).await;
    for number in 0..30 {
        cluster.submit(number).await;
        if number % 10 == 9 {
            let killed = cluster.leader().await.id();
            cluster.kill(killed);
            // The others go on.
            cluster.submit(1_000 + number).await;
            cluster.restart(killed).await.unwrap();
        }
    }
    assert_eq!(drain(&cluster).await, 33);
    cluster.settled().await;
    let page = cluster
        .on_leader(|engine| async move {
            engine
                .list(TaskQuery::first(&TaskFilter::default(), 100))
                .await
        })
        .await;
    assert_eq!(page.tasks.len(), 33);
    for task in page.tasks {
        assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_and_a_key_survive_the_leader() {
    let mut cluster = TestCluster::start(3, |_| {}).await;
    let mut with_key = request(1);
    with_key.id = None;
    with_key.idempotency = Some(IdempotencyRequest {
        key: "key".parse().unwrap(),
        scope: qo_core::task::IdempotencyScope::Queue,
        window_ms: None,
    });
    let first = {
        let with_key = with_key.clone();
        cluster
            .on_leader(|engine| {
                let with_key = with_key.clone();
                async move { engine.submit(with_key).await }
            })
            .await
    };
    let claimed = cluster
        .on_leader(|engine| async move { engine.claim(&claim(1)).await })
        .await;
    let lease = claimed[0].lease_id.unwrap();
    cluster.kill(cluster.leader().await.id());
    // The worker holds its lease with the next leader, and the key still names the task.
    cluster
        .on_leader(|engine| {
            let id = claimed[0].id;
            async move { engine.renew(id, lease, None).await }
        })
        .await;
    let done = cluster
        .on_leader(|engine| {
            let id = claimed[0].id;
            async move { engine.complete(id, lease, None).await }
        })
        .await;
    assert_eq!(done.attempt, 1);
    let again = cluster
        .on_leader(|engine| {
            let with_key = with_key.clone();
            async move { engine.submit(with_key).await }
        })
        .await;
    assert!(again.duplicate);
    assert_eq!(again.task.id, first.task.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_serves_nothing_and_the_others_do() {
    let mut cluster = TestCluster::start(3, |_| {}).await;
    cluster.submit(1).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|node| *node != leader.id()).collect();
    for node in &others {
        cluster.kill(*node);
    }
    eventually("the lone leader stops serving", || {
        (!leader.is_serving()).then_some(())
    })
    .await;
    let refused = leader.engine().submit(request(2)).await;
    assert_eq!(refused.unwrap_err(), EngineError::NotLeader);
    for node in others {
        cluster.restart(node).await.unwrap();
    }
    cluster.submit(2).await;
    assert_eq!(drain(&cluster).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_restart_with_their_disks() {
    let mut cluster = TestCluster::start(3, |config| {
        cut_often(config);
        config.segment_bytes = 4 * 1024;
    })
    .await;
    for number in 0..100 {
        cluster.submit(number).await;
    }
    let leader = cluster.leader().await;
    let is_cut = || (leader.status().log_first > 0).then_some(());
    eventually("the log is cut", is_cut).await;
    drop(leader);
    for node in 1..=3 {
        cluster.kill(node);
    }
    for node in 1..=3 {
        cluster.restart(node).await.unwrap();
    }
    let task = cluster
        .on_leader(|engine| async move { engine.get(TaskId::from_random(1)).await })
        .await;
    assert_eq!(task.status, Status::Pending);
    assert_eq!(drain(&cluster).await, 100);
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_name_the_leader_and_the_log_names_the_commands() {
    let cluster = TestCluster::start(3, |_| {}).await;
    let id = cluster.submit(7).await.task.id;
    assert_eq!(drain(&cluster).await, 1);
    let leader = cluster.leader().await;
    let follower = cluster.follower_of(&leader);
    let refused = follower.engine().get(id).await;
    assert_eq!(refused.unwrap_err(), EngineError::NotLeader);
    let named = eventually("the follower knows the leader", || follower.leader()).await;
    assert_eq!(named.url, format!("http://node{}", leader.id()));
    cluster.settled().await;
    let mut names = Vec::new();
    for line in follower.log(0, None, 100).await.unwrap() {
        for command in line.commands {
            assert_eq!(command.task, Some(id));
            names.push(command.name);
        }
    }
    assert_eq!(names, ["ENQUEUE", "CLAIM", "COMPLETE"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_is_ended_by_the_next_leader() {
    let mut cluster = TestCluster::start(3, |config| {
        config.broker.lease_ms = 2_000;
        config.broker.lease_margin_ms = 200;
    })
    .await;
    cluster.submit(1).await;
    cluster
        .on_leader(|engine| async move { engine.claim(&claim(1)).await })
        .await;
    cluster.kill(cluster.leader().await.id());
    let mut order = claim(1);
    order.wait_ms = Duration::from_secs(20).as_millis() as u64;
    let claimed = cluster
        .on_leader(|engine| {
            let order = order.clone();
            async move { engine.claim(&order).await }
        })
        .await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].attempt, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_hands_over() {
    let mut cluster = TestCluster::start(3, |_| {}).await;
    cluster.submit(1).await;
    let leader = cluster.leader().await;
    leader.hand_over().await;
    assert_ne!(leader.status().state, "leader");
    cluster.kill(leader.id());
    cluster.submit(2).await;
    assert_eq!(drain(&cluster).await, 2);
    // A node that does not lead has nothing to hand over.
    let mut nodes = cluster.running().into_iter();
    let follower = nodes.find(|node| !node.is_serving()).unwrap();
    follower.hand_over().await;
}
