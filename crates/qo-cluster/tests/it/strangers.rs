//! Nodes and directories that do not belong here.

use std::time::Duration;

use qo_cluster::{ClusterConfig, ClusterSecret, Member, NodeGroups};
use qo_store::runtime::TokioRuntime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::{TestCluster, request, secret};

async fn start_error(config: ClusterConfig) -> String {
    let started = NodeGroups::start(config, TokioRuntime::shared()).await;
    started.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_another_node_or_cluster_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let config =
        |node, cluster: &str| ClusterConfig::new(node, cluster, directory.path(), any, secret());
    let mut first = config(1, "one");
    first.members = vec![Member::new(1, "127.0.0.1:1", "")];
    let node = NodeGroups::start(first, TokioRuntime::shared())
        .await
        .unwrap();
    let used = start_error(config(1, "one")).await;
    assert!(used.contains("another process uses it"), "{used}");
    node.shutdown().await;
    drop(node);
    let other = start_error(config(1, "two")).await;
    assert!(other.contains("belongs to the cluster \"one\""), "{other}");
    let other = start_error(config(2, "one")).await;
    assert!(other.contains("belongs to node 1"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_another_secret_or_cluster_get_nothing() {
    let mut cluster = TestCluster::start(1, |_| {}).await;
    cluster
        .on_leader(|engine| async move { engine.submit(request(1)).await })
        .await;
    let leader = cluster.leader().await;
    for (name, secret) in [
        (
            "test",
            ClusterSecret::new("a wrong secret, but a long one").unwrap(),
        ),
        ("other", secret()),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let config = ClusterConfig::new(2, name, directory.path(), any, secret);
        let stranger = NodeGroups::start(config, TokioRuntime::shared())
            .await
            .unwrap();
        let address = stranger.address().unwrap().to_string();
        let adding = leader.add(Member::new(2, address, ""));
        let added = tokio::time::timeout(Duration::from_secs(2), adding).await;
        assert!(added.is_err(), "a stranger was accepted: {added:?}");
        assert_eq!(stranger.status().log_last, None, "a stranger got the log");
        stranger.shutdown().await;
        leader.remove(2).await.unwrap();
    }
    cluster.kill(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_answered_with_a_closed_connection() {
    let cluster = TestCluster::start(1, |_| {}).await;
    let node = cluster.leader().await;
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: node\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 4, 1, 2, 3, 4],
    ] {
        let mut stream = tokio::net::TcpStream::connect(node.address().unwrap())
            .await
            .unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
        // It may be closed with an error, because not all of it was read.
        let _ = closed.await.expect("the connection was left open");
        assert!(answer.len() < 1_000);
    }
    node.engine().submit(request(1)).await.unwrap();
}

#[tokio::test]
async fn bad_settings_are_refused() {
    assert!(ClusterSecret::new("short").is_err());
    let directory = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let config = |node| ClusterConfig::new(node, "one", directory.path(), any, secret());
    assert!(start_error(config(0)).await.contains("start at 1"));
    let mut twice = config(1);
    twice.members = vec![Member::new(1, "a:1", ""), Member::new(1, "b:1", "")];
    assert!(start_error(twice).await.contains("same number"));
    let mut missing = config(1);
    missing.members = vec![Member::new(2, "a:1", "")];
    assert!(start_error(missing).await.contains("not among the members"));
    let mut hasty = config(1);
    hasty.election = (Duration::from_millis(10), Duration::from_millis(20));
    assert!(start_error(hasty).await.contains("heartbeat"));
}
