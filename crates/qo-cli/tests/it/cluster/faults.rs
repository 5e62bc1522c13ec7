//! Nodes that are killed, paused, isolated and wiped while clients submit, claim and complete. With `QO_CLUSTER_MINUTES` the faults are
//! repeated for so long, in random order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use qo::{Queue, Status, Task, TaskFilter};
use qo_check::{ClientLog, Submission};
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use rustix::process::Signal;

use super::LIMIT;
use super::nodes::Cluster;
use super::order::expect_order;
use crate::broker::clients::{Signals, expect_no_breach, ordered_submitter, submitter, worker};
use crate::broker::task;

/// A third of the clients that submit have an ordering key each.
const SUBMITTERS: usize = 6;
const WORKERS: usize = 3;
/// How long clients work between two faults.
const WORK: Duration = Duration::from_millis(800);

/// What happens to a node.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The leader dies and comes back with its disk.
    KillLeader,
    /// A follower dies and comes back with its disk.
    KillFollower,
    /// The leader is suspended. Another one leads when it wakes up.
    SuspendLeader,
    /// The leader is cut off from the other nodes, but not from its clients. Another one leads when it is connected again.
    IsolateLeader,
    /// A follower is cut off from the other nodes.
    IsolateFollower,
    /// A node loses its disk, leaves, and comes back with a new one.
    ReplaceDisk,
}

const FAULTS: [Fault; 6] = [
    Fault::KillLeader,
    Fault::KillFollower,
    Fault::SuspendLeader,
    Fault::IsolateLeader,
    Fault::IsolateFollower,
    Fault::ReplaceDisk,
];

async fn all(queue: &Queue) -> Vec<Task> {
    let filter = TaskFilter::default();
    queue.list_all(filter).try_collect().await.unwrap()
}

/// Submits one task, and records it.
async fn submit(queue: &Queue, log: &mut ClientLog) {
    let request = task();
    let input = request.input.as_str().to_owned();
    let submitted = queue.submit(request).await.unwrap().task.id;
    log.submissions.push(Submission {
        id: Some(submitted),
        key: None,
        input,
        acknowledged: vec![submitted],
    });
}

fn replace_a_disk(cluster: &mut Cluster) {
    let url = cluster.url();
    let wiped = 1 + cluster.leader() % 3;
    let number = wiped.to_string();
    cluster.kill(wiped);
    std::fs::remove_dir_all(cluster.data(wiped)).unwrap();
    cluster
        .cli
        .ok(["cluster", "remove", &number, "--store", &url]);
    let mut joining = cluster.joining_command(wiped);
    cluster.start_with(wiped, &mut joining);
    let member = cluster.member(wiped);
    cluster.cli.ok(["cluster", "add", &member, "--store", &url]);
    cluster
        .cli
        .ok(["cluster", "promote", &number, "--store", &url]);
}

/// Lets a fault strike while clients work. A submit is acknowledged all the same.
async fn strike(fault: Fault, cluster: &mut Cluster, queue: &Queue, log: &mut ClientLog) {
    let runtime = TokioRuntime::shared();
    let leader = cluster.leader();
    let follower = 1 + leader % 3;
    let struck_at = runtime.monotonic();
    match fault {
        Fault::KillLeader => cluster.kill(leader),
        Fault::KillFollower => cluster.kill(follower),
        Fault::SuspendLeader => cluster.signal(leader, Signal::STOP),
        Fault::IsolateLeader => cluster.links().isolate(leader),
        Fault::IsolateFollower => cluster.links().isolate(follower),
        Fault::ReplaceDisk => replace_a_disk(cluster),
    }
    submit(queue, log).await;
    let took = runtime.monotonic().saturating_sub(struck_at);
    println!("{fault:?}: acknowledged after {took:?}");
    match fault {
        Fault::KillLeader => {
            assert!(took < Duration::from_secs(20), "{took:?}");
            cluster.start_node(leader);
        }
        Fault::KillFollower => {
            runtime.sleep(WORK).await;
            cluster.start_node(follower);
        }
        Fault::SuspendLeader => cluster.signal(leader, Signal::CONT),
        Fault::IsolateLeader => cluster.links().heal(),
        Fault::IsolateFollower => {
            runtime.sleep(WORK).await;
            cluster.links().heal();
        }
        Fault::ReplaceDisk => {}
    }
    runtime.sleep(WORK).await;
    cluster.catch_up();
}

/// How long the faults are repeated.
fn repeated_for() -> Duration {
    let minutes = std::env::var("QO_CLUSTER_MINUTES").ok();
    Duration::from_mins(minutes.map_or(0, |text| text.parse().unwrap()))
}

/// Every node shows these tasks, from its own rows.
async fn expect_everywhere(cluster: &Cluster, tasks: &[Task]) {
    cluster.settle();
    for node in 1..=3 {
        let queue = cluster.stale_connection(node).open().await.unwrap();
        let shown = all(&queue).await;
        let different = shown.iter().zip(tasks).find(|(one, other)| one != other);
        assert_eq!(different, None, "node {node} shows another task");
        assert_eq!(shown.len(), tasks.len(), "node {node} shows other tasks");
    }
}

/// Two other nodes lead, one after the other, and show these tasks.
async fn expect_from_other_leaders(cluster: &mut Cluster, queue: &Queue, tasks: &[Task]) {
    for _ in 0..2 {
        let leader = cluster.leader();
        cluster.kill(leader);
        let next = cluster.leader();
        assert_eq!(all(queue).await, tasks, "node {next} shows other tasks");
        cluster.start_node(leader);
        cluster.settle();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_nodes_are_killed_paused_isolated_and_wiped() {
    expect_that_nothing_is_lost(Cluster::start_with_links(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_from_four_groups_while_nodes_are_killed_paused_isolated_and_wiped() {
    expect_that_nothing_is_lost(Cluster::start_with_links(4)).await;
}

async fn expect_that_nothing_is_lost(mut cluster: Cluster) {
    let mut own = ClientLog::default();
    let runtime = TokioRuntime::shared();
    let signals = Arc::new(Signals::default());
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..SUBMITTERS {
        let (connect, signals) = (cluster.connection(), Arc::clone(&signals));
        if number % 3 == 0 {
            let key = format!("line-{number}");
            clients.spawn(async move { ordered_submitter(connect, &key, signals).await });
        } else {
            clients.spawn(submitter(connect, signals));
        }
    }
    for number in 0..WORKERS {
        let (connect, signals) = (cluster.connection(), Arc::clone(&signals));
        clients.spawn(async move { worker(connect, &format!("w-{number}"), signals).await });
    }
    let queue = cluster.queue().await;
    runtime.sleep(WORK).await;
    for fault in FAULTS {
        strike(fault, &mut cluster, &queue, &mut own).await;
    }
    let until = runtime.monotonic() + repeated_for();
    while runtime.monotonic() < until {
        let place = usize::try_from(runtime.random_below(FAULTS.len() as u64)).unwrap();
        strike(FAULTS[place], &mut cluster, &queue, &mut own).await;
    }

    // The faults are over, so every task finishes.
    signals.submitted.store(true, Ordering::Relaxed);
    let until = runtime.monotonic() + LIMIT + repeated_for();
    let mut tasks = all(&queue).await;
    while tasks.iter().any(|task| task.status != Status::Completed) && runtime.monotonic() < until {
        runtime.sleep(Duration::from_millis(200)).await;
        tasks = all(&queue).await;
    }
    signals.drained.store(true, Ordering::Relaxed);
    let mut log = own;
    while let Some(client) = clients.join_next().await {
        log.merge(client.unwrap());
    }
    let known = log.submissions.len();
    println!(
        "{} of {known} submits acknowledged, {} completions",
        log.acknowledged(),
        log.completed.len()
    );
    assert!(log.acknowledged() > 100, "there was no load");
    tasks = all(&queue).await;
    expect_everywhere(&cluster, &tasks).await;
    expect_from_other_leaders(&mut cluster, &queue, &tasks).await;
    expect_no_breach(&tasks, &log);
    expect_order(&tasks, &log);
}
