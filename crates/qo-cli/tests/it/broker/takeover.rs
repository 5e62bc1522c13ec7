//! A leader that dies, and one that stops: how long a client that knows only the store has to wait.

use std::time::Duration;

use qo_store::runtime::TokioRuntime;
use serde_json::Value;

use super::process::{BrokerProcess, get};
use super::{LIMIT, task};
use crate::e2e::cli::TestCli;

/// The goal is five seconds. The machine of a test may be busy with others.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);

async fn a_standby_takes_over(cli: &TestCli) {
    let runtime = TokioRuntime::shared();
    let mut first = BrokerProcess::leader(cli, "first");
    let mut second = BrokerProcess::standby(cli, "second");
    assert_eq!(get(format!("{}/readyz", first.url)).await.0, 200);
    assert_eq!(get(format!("{}/healthz", second.url)).await.0, 200);
    let (status, text) = get(format!("{}/readyz", second.url)).await;
    assert_eq!(status, 503);
    assert!(text.contains("standby"), "{text}");
    let (status, text) = get(format!("{}/v1/stats", second.url)).await;
    let problem: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &problem["code"]),
        (503, &Value::from("not_leader"))
    );
    assert_eq!(problem["leader"], first.url);
    let (_, metrics) = get(format!("{}/metrics", first.url)).await;
    assert!(metrics.contains("\nqo_leader 1\n") && metrics.contains("\nqo_leader_epoch 1\n"));
    let (_, metrics) = get(format!("{}/metrics", second.url)).await;
    assert!(metrics.contains("\nqo_leader 0\n"), "{metrics}");

    // One client connects before the leader dies, another one while no broker leads.
    let queue = cli.connection().open().await.unwrap();
    let mut submitted = vec![queue.submit(task()).await.unwrap().task.id];
    commits_are_measured(&first).await;
    let killed_at = runtime.monotonic();
    first.kill();
    let connected = async {
        submitted.push(queue.submit(task()).await.unwrap().task.id);
        runtime.monotonic().saturating_sub(killed_at)
    };
    let connecting = async {
        let queue = cli.connection().open().await.unwrap();
        let id = queue.submit(task()).await.unwrap().task.id;
        (runtime.monotonic().saturating_sub(killed_at), id)
    };
    let (connected, (connecting, id)) = tokio::join!(connected, connecting);
    submitted.push(id);
    println!(
        "acknowledged after kill -9 of the leader: {connected:?} by a client that was connected, {connecting:?} by one that connects"
    );
    assert!(connected < TAKEOVER_MAX && connecting < TAKEOVER_MAX);
    assert!(second.log().contains("challenging"));
    commits_are_measured(&second).await;

    // A stop needs no challenge.
    let third = BrokerProcess::standby(cli, "third");
    let stopped_at = runtime.monotonic();
    second.stop();
    let stopped = runtime.monotonic();
    submitted.push(queue.submit(task()).await.unwrap().task.id);
    let took = runtime.monotonic().saturating_sub(stopped_at);
    println!(
        "acknowledged after SIGTERM: {took:?}, of which the stop took {:?}",
        stopped.saturating_sub(stopped_at)
    );
    assert!(took < TAKEOVER_MAX, "{took:?}");
    assert!(
        !third.log().contains("challenging"),
        "it was not handed over"
    );
    let tasks = queue.list(&qo::TaskFilter::default(), None, 100).await;
    let mut there: Vec<_> = tasks.unwrap().tasks.iter().map(|task| task.id).collect();
    there.sort();
    submitted.sort();
    assert_eq!(there, submitted, "all of them, and each once");

    // The command finds the new leader, too, and so does a list of servers that starts with a standby.
    let fourth = BrokerProcess::standby(cli, "fourth");
    let listed = cli.ok(["list", "--all", "--json"]);
    assert_eq!(listed.lines().count(), submitted.len());
    let through = cli.ok(["list", "--all", "--json", "--store", &fourth.url]);
    assert_eq!(through.lines().count(), submitted.len());
    // So does the URL of a cluster, whose first node does not exist.
    let nodes = [&fourth.url, &third.url].map(|url| url.trim_start_matches("http://"));
    let cluster = format!("cluster://127.0.0.1:1,{},{}", nodes[0], nodes[1]);
    let through = cli.ok(["list", "--all", "--json", "--store", &cluster]);
    assert_eq!(through.lines().count(), submitted.len());
}

/// The server hears of the commits of whichever engine it has at the moment.
async fn commits_are_measured(broker: &BrokerProcess) {
    let (_, metrics) = get(format!("{}/metrics", broker.url)).await;
    let counts = metrics.lines().filter_map(|line| {
        let count = line.strip_prefix("qo_commit_seconds_count ")?;
        count.parse::<u64>().ok()
    });
    assert!(counts.sum::<u64>() > 0, "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite() {
    a_standby_takes_over(&TestCli::sqlite().with_engine("slate")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_seaweedfs() {
    a_standby_takes_over(&TestCli::seaweedfs().with_engine("slate")).await;
}

/// A worker that knows only the store continues at the next broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_follow() {
    let cli = TestCli::sqlite().with_engine("slate");
    let mut first = BrokerProcess::leader(&cli, "first");
    let _second = BrokerProcess::standby(&cli, "second");
    let worker = cli.worker("w", &["--lease", "30s", "--exec", "work=cat"]);
    let queue = cli.connection().open().await.unwrap();
    let before = queue.submit(task()).await.unwrap().task.id;
    queue.wait(before, LIMIT).await.unwrap();
    first.kill();
    let after = queue.submit(task()).await.unwrap().task.id;
    let done = queue.wait(after, LIMIT).await.unwrap();
    assert_eq!(done.status, qo::Status::Completed, "{}", worker.log());
    assert_eq!(done.attempt, 1);
}
