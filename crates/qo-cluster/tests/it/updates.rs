//! Nodes that speak different versions of the protocol, as during an update.

use std::time::Duration;

use qo_cluster::{Member, NodeGroups, PROTOCOL};
use qo_store::runtime::TokioRuntime;

use crate::cluster::{TestCluster, drain, request};

/// Node 1 has the current version; the others have one that also speaks the next version of the protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_two_versions_serve_together() {
    let mut cluster = TestCluster::start(3, |config| {
        if config.node > 1 {
            config.protocol = *PROTOCOL.start()..=PROTOCOL.end() + 1;
        }
    })
    .await;
    let mut submitted = 0;
    // Each node leads once, or is at least a follower of both kinds of leaders.
    for _ in 0..3 {
        for _ in 0..5 {
            cluster
                .on_leader(|engine| async move { engine.submit(request(submitted)).await })
                .await;
            submitted += 1;
        }
        let leader = cluster.leader().await.id();
        cluster.kill(leader);
        cluster
            .on_leader(|engine| async move { engine.submit(request(submitted)).await })
            .await;
        submitted += 1;
        cluster.restart(leader).await.unwrap();
        cluster.settled().await;
    }
    assert_eq!(drain(&cluster).await as u64, submitted);
    cluster.settled().await;
}

/// A node that no longer speaks the current version is refused while there is one that speaks nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_common_version_is_refused() {
    let cluster = TestCluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let mut config = cluster.config(1);
    let directory = tempfile::tempdir().unwrap();
    config.node = 2;
    config.data = directory.path().to_owned();
    config.listen = "127.0.0.1:0".parse().unwrap();
    let next = PROTOCOL.end() + 1;
    config.protocol = next..=next;
    let newer = NodeGroups::start(config, TokioRuntime::shared())
        .await
        .unwrap();
    let member = Member::new(2, newer.address().unwrap().to_string(), "");
    let added = tokio::time::timeout(Duration::from_secs(2), leader.add(member)).await;
    assert!(added.is_err(), "it was accepted: {added:?}");
    assert_eq!(newer.status().log_last, None, "it got the log");
    newer.shutdown().await;
}
