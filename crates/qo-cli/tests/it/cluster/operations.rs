//! What an operator does: look at a cluster, back it up and restore it.

use std::fs;
use std::path::Path;

use qo::{ClaimRequest, Failure, FailureKind, LeaseId, Queue, TaskFilter, TaskId};
use serde_json::Value;

use super::nodes::{Cluster, get};
use crate::broker::task;
use crate::schema;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_log_have_the_documented_form() {
    let cluster = Cluster::start();
    let queue = cluster.queue().await;
    let id = queue.submit(task()).await.unwrap().task.id;
    let claim = ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
    let claimed = queue.claim(&claim).await.unwrap();
    let granted_at = claimed[0].log_index.unwrap().get();
    let lease = claimed[0].lease_id.unwrap();
    queue.complete(id, lease, None).await.unwrap();

    let leader = cluster.leader();
    for node in 1..=3 {
        let status = cluster.status(node).unwrap();
        schema::check("cluster-status", &status);
        assert_eq!(status["members"].as_array().unwrap().len(), 3);
    }
    let url = cluster.url();
    let json = ["cluster", "log", "--limit=1000", "--json", "--store", &url];
    let entries = lines(&cluster.cli.ok(json));
    let mut commands = Vec::new();
    for entry in &entries {
        schema::check("cluster-log-entry", entry);
        let of_task = entry["commands"].as_array().unwrap().iter();
        let of_task = of_task.filter(|command| command["task"] == id.to_string());
        let is_granted = |command: &&Value| command["name"] == "CLAIM";
        if of_task.clone().any(|command| is_granted(&command)) {
            assert_eq!(entry["index"], granted_at);
        }
        commands.extend(of_task.map(|command| command["name"].as_str().unwrap().to_owned()));
    }
    assert_eq!(commands, ["ENQUEUE", "CLAIM", "COMPLETE"]);

    // For people.
    let table = cluster.cli.ok(["cluster", "status", "--store", &url]);
    assert!(table.contains(&format!("leader {leader}")), "{table}");
    let log = cluster.cli.ok(["cluster", "log", "--store", &url]);
    assert!(log.contains(&format!("ENQUEUE {id}")), "{log}");
    cluster.cli.ok(["cluster", "snapshot", "--store", &url]);

    // A change that makes no sense is refused.
    let refused = cluster.cli.run(["cluster", "remove", "9", "--store", &url]);
    assert_eq!(refused.status.code(), Some(2));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("node 9 is not a member"), "{error}");
    let not_a_cluster = cluster.cli.run(["cluster", "status"]);
    assert_eq!(not_a_cluster.status.code(), Some(2));
}

/// The names of the commands that changed a task, oldest first.
fn commands_of(entries: &[Value], id: TaskId) -> Vec<&str> {
    let id = id.to_string();
    let commands = entries
        .iter()
        .flat_map(|entry| entry["commands"].as_array().unwrap());
    let of_task = commands.filter(|command| command["task"] == id);
    let names = of_task.map(|command| command["name"].as_str().unwrap());
    names.collect()
}

/// Submits a task and claims it. It must be the only one that waits.
async fn submit_and_claim(queue: &Queue, lease_ms: u64) -> (TaskId, LeaseId) {
    let id = queue.submit(task()).await.unwrap().task.id;
    (id, claim(queue, id, lease_ms).await)
}

/// Claims a task as soon as it is due.
async fn claim(queue: &Queue, id: TaskId, lease_ms: u64) -> LeaseId {
    let claim = ClaimRequest {
        wait_ms: 30_000,
        lease_ms: Some(lease_ms),
        ..ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()])
    };
    let claimed = queue.claim(&claim).await.unwrap();
    assert_eq!(claimed[0].id, id);
    claimed[0].lease_id.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_names_what_happens_to_attempts() {
    const LONG_MS: u64 = 600_000;
    let cluster = Cluster::start();
    let queue = cluster.queue().await;

    let (failed, lease) = submit_and_claim(&queue, LONG_MS).await;
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "no such account".into(),
    };
    queue.fail(failed, lease, failure).await.unwrap();

    let (renewed, lease) = submit_and_claim(&queue, LONG_MS).await;
    queue.renew(renewed, lease, Some(LONG_MS)).await.unwrap();
    queue.complete(renewed, lease, None).await.unwrap();

    let (released, lease) = submit_and_claim(&queue, LONG_MS).await;
    queue.release(released, lease).await.unwrap();
    let lease = claim(&queue, released, LONG_MS).await;
    queue.complete(released, lease, None).await.unwrap();

    // Nobody asks for the end of this lease.
    let (expired, _) = submit_and_claim(&queue, 1_000).await;
    let lease = claim(&queue, expired, LONG_MS).await;
    queue.complete(expired, lease, None).await.unwrap();

    let url = cluster.url();
    let json = ["cluster", "log", "--limit=1000", "--json", "--store", &url];
    let entries = lines(&cluster.cli.ok(json));
    for entry in &entries {
        schema::check("cluster-log-entry", entry);
    }
    for (id, rest) in [
        (failed, &["FAIL"][..]),
        (renewed, &["RENEW", "COMPLETE"]),
        (released, &["RELEASE", "CLAIM", "COMPLETE"]),
        (expired, &["EXPIRE", "CLAIM", "COMPLETE"]),
    ] {
        let expected = [&["ENQUEUE", "CLAIM"][..], rest].concat();
        assert_eq!(commands_of(&entries, id), expected, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_restored_from_the_copy_of_one_node() {
    let mut cluster = Cluster::start();
    let queue = cluster.queue().await;
    for _ in 0..20 {
        queue.submit(task()).await.unwrap();
    }
    let filter = TaskFilter::default();
    let tasks = queue.list(&filter, None, 100).await.unwrap().tasks;
    cluster.settle();

    // The copy of a stopped follower.
    let copied = 1 + cluster.leader() % 3;
    cluster.stop(copied);
    let backup = cluster.cli.file("backup");
    copy(&cluster.data(copied), &backup);
    cluster.start_node(copied);
    queue.submit(task()).await.unwrap();
    drop(queue);

    // All disks are lost.
    for node in 1..=3 {
        cluster.kill(node);
        fs::remove_dir_all(cluster.data(node)).unwrap();
    }
    copy(&backup, &cluster.data(copied));
    cluster.start_node(copied);
    for node in (1..=3).filter(|node| *node != copied) {
        let mut command = cluster.joining_command(node);
        cluster.start_with(node, &mut command);
    }
    cluster.settle();
    let queue = cluster.queue().await;
    let restored = queue.list(&filter, None, 100).await.unwrap().tasks;
    assert_eq!(restored, tasks);

    // The others have it, too.
    cluster.kill(copied);
    let restored = queue.list(&filter, None, 100).await.unwrap().tasks;
    assert_eq!(restored, tasks);
    queue.submit(task()).await.unwrap();
}

#[test]
fn dev_runs_its_samples_on_a_cluster() {
    let workspace = crate::workspace::Workspace::new();
    let dev = [
        "dev",
        "--cluster",
        "3",
        "--for",
        "1s",
        "--listen",
        "127.0.0.1:0",
    ];
    let result = workspace.qo(&dev);
    let text = format!("{}{}", result.assert(0).stdout, result.stderr);
    assert!(text.contains("dashboard: http://127.0.0.1:"), "{text}");
    assert!(text.contains("completed demo."), "{text}");
    assert!(text.contains("The cluster was in this process"), "{text}");
    // A cluster keeps the queue itself.
    let refused = workspace.qo(&["--store", "memory:", "dev", "--cluster", "3"]);
    refused.assert(2);
    assert!(
        refused.stderr.contains("omit --store"),
        "{}",
        refused.stderr
    );
    workspace.qo(&["dev", "--cluster", "9"]).assert(2);
}

/// A follower answers reads only if the caller accepts old ones. It does so even if nobody else runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_answer_old_reads_on_request() {
    let mut cluster = Cluster::start();
    let queue = cluster.queue().await;
    let id = queue.submit(task()).await.unwrap().task.id;
    let claim = ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
    let lease = queue.claim(&claim).await.unwrap()[0].lease_id.unwrap();
    queue.complete(id, lease, None).await.unwrap();
    let waiting = queue.submit(task()).await.unwrap().task.id;
    cluster.settle();
    let leader = cluster.leader();
    for node in (1..=3).filter(|node| *node != leader).skip(1) {
        cluster.kill(node);
    }
    cluster.kill(leader);
    let url = cluster.url();
    let stale = format!("{url}?stale=true");
    for (id, status) in [(id, "completed"), (waiting, "pending")] {
        let text = cluster
            .cli
            .ok(["status", &id.to_string(), "--json", "--store", &stale]);
        let task: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(task["status"], status, "{text}");
    }
    let listed = cluster
        .cli
        .ok(["list", "--all", "--json", "--store", &stale]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    // Changes need a leader, and so do reads without the parameter.
    let survivor = (1..=3).find(|node| cluster.is_running(*node)).unwrap();
    let response = status_of_list(&cluster.url_of(survivor), None);
    assert_eq!(response, 503);
    assert_eq!(
        status_of_list(&cluster.url_of(survivor), Some("stale")),
        200
    );
}

/// The status of a read of all tasks.
fn status_of_list(url: &str, read: Option<&str>) -> u16 {
    get(url, "/v1/tasks", read)[9..12].parse().unwrap()
}
