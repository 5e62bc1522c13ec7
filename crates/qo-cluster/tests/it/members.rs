//! Nodes that join, leave and catch up.

use qo_cluster::ClusterError;

use crate::cluster::{TestCluster, cut_often, drain, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_catches_up_by_snapshot_and_an_old_one_leaves() {
    let mut cluster = TestCluster::start(3, cut_often).await;
    for number in 0..80 {
        cluster.submit(number).await;
    }
    let leader = cluster.leader().await;
    eventually("the log was cut", || {
        (leader.status().log_first > 10).then_some(())
    })
    .await;
    let member = cluster.start_new().await;
    let new = cluster.node(member.node);
    let leader = cluster.leader().await;
    leader.add(member.clone()).await.unwrap();
    leader.promote(member.node).await.unwrap();
    cluster.settled().await;
    assert!(new.status().log_first > 10, "it got the whole log");
    // An old member leaves, and the new one counts for the majority.
    let leader = cluster.leader().await;
    let leaving = (1..=3).find(|node| *node != leader.id()).unwrap();
    leader.remove(leaving).await.unwrap();
    let voters = leader.status().members;
    assert_eq!(voters.len(), 3);
    assert!(
        voters
            .iter()
            .all(|member| member.voter && member.node != leaving)
    );
    cluster.kill(leaving);
    assert_eq!(drain(&cluster).await, 80);
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_down_for_long_gets_a_snapshot() {
    let mut cluster = TestCluster::start(3, cut_often).await;
    let leader = cluster.leader().await;
    let down = (1..=3).find(|node| *node != leader.id()).unwrap();
    cluster.kill(down);
    for number in 0..80 {
        cluster.submit(number).await;
    }
    let leader = cluster.leader().await;
    eventually("the log was cut", || {
        (leader.status().log_first > 50).then_some(())
    })
    .await;
    cluster.restart(down).await.unwrap();
    cluster.settled().await;
    let first = cluster.node(down).status().log_first;
    assert!(first > 50, "it got no snapshot: its log begins at {first}");
    // It can lead with what it received.
    let old = cluster.leader().await.id();
    cluster.kill(old);
    assert_eq!(drain(&cluster).await, 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_changes_members() {
    let cluster = TestCluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower_of(&leader);
    let refused = follower.promote(2).await.unwrap_err();
    assert!(
        matches!(refused, ClusterError::NotLeader { .. }),
        "{refused}"
    );
    let unknown = leader.remove(9).await.unwrap_err();
    assert!(unknown.to_string().contains("not a member"), "{unknown}");
}
