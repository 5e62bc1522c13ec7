//! Nodes that are killed, paused, isolated and wiped while clients submit, claim and complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use qo::{Queue, Status, Task, TaskFilter};
use qo_check::{ClientLog, FinalState, Submission};
use qo_store::runtime::TokioRuntime;
use rustix::process::Signal;

use super::LIMIT;
use super::nodes::Cluster;
use crate::broker::clients::{Signals, submitter, worker};
use crate::broker::task;

const SUBMITTERS: usize = 6;
const WORKERS: usize = 3;

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

/// A node loses its disk, leaves, and comes back with a new one.
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

/// Two other nodes lead, one after the other, and show these tasks.
async fn expect_everywhere(cluster: &mut Cluster, queue: &Queue, tasks: &[Task]) {
    cluster.settle();
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
    for _ in 0..SUBMITTERS {
        clients.spawn(submitter(cluster.connection(), Arc::clone(&signals)));
    }
    for number in 0..WORKERS {
        let (connect, signals) = (cluster.connection(), Arc::clone(&signals));
        clients.spawn(async move { worker(connect, &format!("w-{number}"), signals).await });
    }
    let queue = cluster.queue().await;
    let work = Duration::from_millis(800);
    runtime.sleep(work).await;

    // The leader dies and comes back with its disk; then a follower does.
    let leader = cluster.leader();
    let killed_at = runtime.monotonic();
    cluster.kill(leader);
    submit(&queue, &mut own).await;
    let took = runtime.monotonic().saturating_sub(killed_at);
    println!("acknowledged {took:?} after kill -9 of the leader");
    assert!(took < Duration::from_secs(20), "{took:?}");
    cluster.start_node(leader);
    runtime.sleep(work).await;
    let follower = 1 + cluster.leader() % 3;
    cluster.kill(follower);
    runtime.sleep(work).await;
    cluster.start_node(follower);
    cluster.catch_up();

    // The leader is suspended. Another one leads when it wakes up.
    let leader = cluster.leader();
    cluster.signal(leader, Signal::STOP);
    let stopped_at = runtime.monotonic();
    submit(&queue, &mut own).await;
    println!(
        "acknowledged {:?} after SIGSTOP of the leader",
        runtime.monotonic().saturating_sub(stopped_at)
    );
    cluster.signal(leader, Signal::CONT);
    runtime.sleep(work).await;
    cluster.catch_up();

    // The leader is cut off from the other nodes, but not from its clients. Another one leads when it is connected again, and then a
    // follower is cut off.
    let leader = cluster.leader();
    cluster.links().isolate(leader);
    let isolated_at = runtime.monotonic();
    submit(&queue, &mut own).await;
    println!(
        "acknowledged {:?} after the leader was isolated",
        runtime.monotonic().saturating_sub(isolated_at)
    );
    cluster.links().heal();
    cluster.catch_up();
    cluster.links().isolate(1 + cluster.leader() % 3);
    submit(&queue, &mut own).await;
    runtime.sleep(work).await;
    cluster.links().heal();
    cluster.catch_up();

    replace_a_disk(&mut cluster);
    runtime.sleep(work).await;

    // The faults are over, so every task finishes.
    signals.submitted.store(true, Ordering::Relaxed);
    let until = runtime.monotonic() + LIMIT;
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
    expect_everywhere(&mut cluster, &queue, &tasks).await;
    let breaches = FinalState {
        tasks: &tasks,
        log: &log,
        ends: &[Status::Completed],
        has_one_clock: false,
        knows_completions: true,
    }
    .check();
    assert!(breaches.is_empty(), "{}:\n{breaches}", breaches.0.len());
}
