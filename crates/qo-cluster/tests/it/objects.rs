//! Small objects that all nodes have: tokens, and the records of blobs.

use bytes::Bytes;
use qo_core::OpId;
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use qo_store::{StoreClient, StoreError};

use crate::cluster::{TestCluster, eventually};

fn body(count: u64, op: &OpId, recent: &[OpId]) -> Bytes {
    let recent: Vec<String> = recent.iter().map(ToString::to_string).collect();
    let text = serde_json::json!({ "count": count, "op_id": op.to_string(), "recent_ops": recent });
    Bytes::from(text.to_string())
}

fn count_of(body: &Bytes) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    value["count"].as_u64().unwrap()
}

/// Adds one, however often others are faster.
async fn add_one(client: &StoreClient) {
    let runtime = TokioRuntime::shared();
    loop {
        let found = client.get("meta/counter").await.unwrap();
        let op = runtime.new_op_id();
        let next = body(count_of(&found.body) + 1, &op, &[]);
        match client.swap("meta/counter", next, &found.tag, &op).await {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditional_writes_hold_and_all_nodes_have_them() {
    let mut cluster = TestCluster::start(3, |_| {}).await;
    let runtime = TokioRuntime::shared();
    let leader = cluster.leader().await;
    let client = leader.objects();
    let op = runtime.new_op_id();
    client
        .create("meta/counter", body(0, &op, &[]), &op)
        .await
        .unwrap();
    let other = runtime.new_op_id();
    let again = client.create("meta/counter", body(9, &other, &[]), &other);
    assert!(matches!(again.await, Err(StoreError::AlreadyExists { .. })));
    let adding = (0..16).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                add_one(&client).await;
            }
        })
    });
    for added in futures_util::future::join_all(adding).await {
        added.unwrap();
    }
    let found = client.get("meta/counter").await.unwrap();
    assert_eq!(count_of(&found.body), 80, "an increment was lost");

    // Objects of several parts, ranges of them, lists, and deletes.
    let large: Bytes = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    client.put("blobs/a", large.clone()).await.unwrap();
    client
        .put("blobs/b", Bytes::from_static(b"b"))
        .await
        .unwrap();
    assert_eq!(client.get("blobs/a").await.unwrap().body, large);
    let page = client.page("blobs", None, 10).await.unwrap();
    let keys: Vec<_> = page
        .entries
        .iter()
        .map(|entry| entry.key.as_str())
        .collect();
    assert_eq!(keys, ["blobs/a", "blobs/b"]);
    let range = 1_048_570..2_097_160;
    let part = client.read("blobs/a", Some(range.clone())).await.unwrap();
    let part: Vec<Bytes> = futures_util::TryStreamExt::try_collect(part.body)
        .await
        .unwrap();
    assert_eq!(
        part.concat(),
        large[range.start as usize..range.end as usize]
    );
    client.delete_many(&["blobs/b".to_owned()]).await.unwrap();

    // Every node reads its own rows; only the leader confirms reads and writes.
    cluster.settled().await;
    for node in cluster.running() {
        let local = node.local_objects();
        assert_eq!(count_of(&local.get("meta/counter").await.unwrap().body), 80);
        if node.id() != leader.id() {
            let once = node.objects().trying_once();
            assert!(once.get("meta/counter").await.is_err());
            assert!(
                local
                    .trying_once()
                    .put("blobs/c", large.slice(..9))
                    .await
                    .is_err()
            );
        }
    }

    // The next leader has the same.
    cluster.kill(leader.id());
    let next = cluster.leader().await;
    let client = next.objects();
    add_one(&client).await;
    let found = client.get("meta/counter").await.unwrap();
    assert_eq!(count_of(&found.body), 81);
    assert_eq!(client.get("blobs/a").await.unwrap().body, large);
    let gone = client.get("blobs/b").await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
    eventually("the counter is everywhere", || {
        let applied = next.status().applied;
        let nodes = cluster.running();
        nodes
            .iter()
            .all(|node| node.status().applied == applied)
            .then_some(())
    })
    .await;
}
