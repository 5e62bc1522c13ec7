//! Clusters with several groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qo_cluster::{ClusterConfig, NodeGroups};
use qo_core::Status;
use qo_core::task::{OnFailure, OrderingRule};
use qo_engine::api::{TaskFilter, TaskQuery};

use crate::cluster::{TestCluster, claim, cut_often, drain, eventually, request};

const GROUPS: u16 = 4;

fn four_groups(config: &mut ClusterConfig) {
    config.groups = GROUPS;
}

/// The leader and the term of each group, as a node sees them.
fn led(node: &NodeGroups) -> Vec<(Option<u64>, u64)> {
    let groups = node.status().groups;
    groups
        .iter()
        .map(|group| (group.leader, group.term))
        .collect()
}

/// Waits until all nodes agree that one node leads all groups. On a slow disk the lead may move once more before they do.
async fn expect_one_leader(cluster: &TestCluster) -> NodeGroups {
    let nodes = cluster.running();
    eventually("all nodes know one leader of all groups", || {
        let known = nodes.iter().flat_map(led).map(|(leader, _)| leader);
        let known: Vec<_> = known.collect::<BTreeSet<_>>().into_iter().collect();
        let [Some(leader)] = known[..] else {
            return None;
        };
        nodes.iter().find(|node| node.id() == leader).cloned()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_leads_all_groups_and_keeps_the_lead() {
    let cluster = TestCluster::start(3, four_groups).await;
    let leader = expect_one_leader(&cluster).await;
    let first = led(&leader);
    assert_eq!(first.len(), usize::from(GROUPS));
    for number in 0..40 {
        cluster.submit(number).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(led(&leader), first, "the lead moved without a reason");
    assert!(leader.is_serving());
    // Every group has a share of the tasks.
    for group in 0..GROUPS {
        let lines = leader.log(group, None, 1_000).await.unwrap();
        let enqueued = lines.iter().flat_map(|line| &line.commands);
        let count = enqueued.filter(|command| command.name == "ENQUEUE").count();
        assert!((1..40).contains(&count), "group {group} has {count}");
    }
    let error = leader.log(GROUPS, None, 1).await.unwrap_err().to_string();
    assert!(error.contains("0 to 3"), "{error}");

    // The other groups follow group 0 to another node.
    let next = cluster.follower_of(&leader);
    leader.transfer(next.id()).await.unwrap();
    eventually("the next node serves all groups", || {
        next.is_serving().then_some(())
    })
    .await;
    assert_eq!(expect_one_leader(&cluster).await.id(), next.id());
    assert_eq!(drain(&cluster).await, 40);
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_of_groups_loses_nothing_that_it_acknowledged() {
    let mut cluster = TestCluster::start(3, |config| {
        four_groups(config);
        cut_often(config);
    })
    .await;
    let mut expected = 0;
    for round in 0..3 {
        for number in 0..20 {
            cluster.submit(round * 1_000 + number).await;
            expected += 1;
        }
        // Many submits are under way in all groups when the leader dies, so its followers have different entries.
        let leader = cluster.leader().await;
        let mut under_way = tokio::task::JoinSet::new();
        for number in 0..40 {
            let engine = leader.engine();
            let request = request(round * 1_000 + 100 + number);
            under_way.spawn(async move { engine.submit(request).await });
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        let killed = leader.id();
        // It holds the lock of its directory.
        drop(leader);
        cluster.kill(killed);
        under_way.abort_all();
        for number in 0..40 {
            // Those that were not acknowledged are repeated under the same id.
            cluster.submit(round * 1_000 + 100 + number).await;
            expected += 1;
        }
        cluster.restart(killed).await.unwrap();
        expect_one_leader(&cluster).await;
    }
    assert_eq!(drain(&cluster).await, expected);
    cluster.settled().await;
    let filter = TaskFilter::default();
    let page = cluster
        .on_leader(|engine| {
            let filter = filter.clone();
            async move { engine.list(TaskQuery::first(&filter, 1_000)).await }
        })
        .await;
    assert_eq!(page.tasks.len(), expected);
    for task in page.tasks {
        assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_per_key_is_kept_across_groups_and_leaders() {
    const KEYS: u64 = 6;
    const EACH: u64 = 5;
    let mut cluster = TestCluster::start(3, four_groups).await;
    for number in 0..KEYS * EACH {
        let mut request = request(number);
        request.id = None;
        request.ordering = Some(OrderingRule {
            key: format!("key-{}", number % KEYS).parse().unwrap(),
            on_failure: OnFailure::Continue,
        });
        cluster
            .on_leader(|engine| {
                let request = request.clone();
                async move { engine.submit(request).await }
            })
            .await;
    }
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut last_index: BTreeMap<String, u64> = BTreeMap::new();
    let mut done = 0;
    while done < KEYS * EACH {
        let tasks = cluster
            .on_leader(|engine| async move { engine.claim(&claim(100)).await })
            .await;
        assert!(tasks.len() as u64 <= KEYS, "two tasks of a key run at once");
        for task in tasks {
            let key = task.ordering_key.as_ref().unwrap().to_string();
            let input = task.inline_input().unwrap().as_str().to_owned();
            let number: String = input.chars().filter(char::is_ascii_digit).collect();
            seen.entry(key.clone())
                .or_default()
                .push(number.parse().unwrap());
            // All tasks of a key are in one group, so its index orders them.
            let index = task.log_index.unwrap().get();
            let before = last_index.insert(key, index);
            assert!(before.is_none_or(|before| before < index));
            let lease = task.lease_id.unwrap();
            cluster
                .on_leader(|engine| async move { engine.complete(task.id, lease, None).await })
                .await;
            done += 1;
        }
        if done == KEYS * 2 {
            cluster.kill(cluster.leader().await.id());
        }
    }
    assert_eq!(seen.len() as u64, KEYS);
    for numbers in seen.into_values() {
        assert_eq!(numbers.len() as u64, EACH);
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_join_and_leave_all_groups() {
    let mut cluster = TestCluster::start(3, |config| {
        four_groups(config);
        cut_often(config);
    })
    .await;
    for number in 0..120 {
        cluster.submit(number).await;
    }
    let leader = expect_one_leader(&cluster).await;
    let member = cluster.start_new().await;
    leader.add(member.clone()).await.unwrap();
    leader.promote(member.node).await.unwrap();
    let removed = cluster.follower_of(&leader).id();
    leader.remove(removed).await.unwrap();
    cluster.kill(removed);
    let error = leader.remove(removed).await.unwrap_err().to_string();
    assert!(error.contains("not a member"), "{error}");
    for group in leader.groups() {
        let nodes: Vec<u64> = group.status().members.iter().map(|one| one.node).collect();
        assert!(nodes.contains(&member.node) && !nodes.contains(&removed));
    }
    cluster.settled().await;
    // The new node votes in every group: with it, the others survive the loss of the leader.
    cluster.kill(leader.id());
    cluster.submit(1_000).await;
    assert_eq!(drain(&cluster).await, 121);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_groups_is_refused_and_old_directories_open() {
    let mut cluster = TestCluster::start(1, four_groups).await;
    cluster.submit(1).await;
    cluster.node(1).shutdown().await;
    cluster.kill(1);
    for other in [1, 3, 5] {
        let mut config = cluster.config(1);
        config.groups = other;
        let error = start_error(config).await;
        assert!(error.contains("start this node with --groups 4"), "{error}");
    }
    cluster.restart(1).await.unwrap();
    assert_eq!(drain(&cluster).await, 1);

    // A directory of an earlier version says nothing of groups, and has one.
    let mut cluster = TestCluster::start(1, |_| {}).await;
    cluster.submit(1).await;
    cluster.node(1).shutdown().await;
    cluster.kill(1);
    let path = cluster.data(1).join("node.json");
    let mut identity: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(identity["format"], 1);
    identity.as_object_mut().unwrap().remove("groups").unwrap();
    std::fs::write(&path, identity.to_string()).unwrap();
    let mut config = cluster.config(1);
    config.groups = 2;
    let error = start_error(config).await;
    assert!(error.contains("start this node with --groups 1"), "{error}");
    cluster.restart(1).await.unwrap();
    assert_eq!(drain(&cluster).await, 1);

    let mut config = cluster.config(1);
    for bad in [0, 65] {
        config.groups = bad;
        let error = start_error(config.clone()).await;
        assert!(error.contains("1 to 64 groups"), "{error}");
    }
}

/// The error of a node that must not start.
async fn start_error(mut config: ClusterConfig) -> String {
    config.listen = "127.0.0.1:0".parse().unwrap();
    let started = NodeGroups::start(config, qo_store::runtime::TokioRuntime::shared());
    started.await.unwrap_err().to_string()
}
