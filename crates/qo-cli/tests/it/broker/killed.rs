//! A broker that is killed twenty times under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use qo::{Status, Task, TaskFilter};
use qo_check::ClientLog;
use qo_store::runtime::{RuntimeExt, TokioRuntime};

use super::LIMIT;
use super::clients::{Signals, expect_no_breach, submitter, worker};
use super::process::BrokerProcess;
use crate::e2e::cli::TestCli;

const KILLS: usize = 20;
const SUBMITTERS: usize = 12;
const WORKERS: usize = 4;
/// The longest life of a broker.
const LIFE_MAX_MS: u64 = 1_500;
/// A takeover takes about one and a half times as long. With the default, takeovers would take most of the test's time.
const ANSWER_MS: &str = "600";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_runs_twice_at_once() {
    let cli = TestCli::sqlite()
        .with_engine("slate")
        .with_variable("QO_BROKER_ANSWER_MS", ANSWER_MS);
    let runtime = TokioRuntime::shared();
    let started = runtime.monotonic();
    let mut broker = BrokerProcess::leader(&cli, "broker 0");
    let signals = Arc::new(Signals::default());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..SUBMITTERS {
        clients.spawn(submitter(cli.connection(), Arc::clone(&signals)));
    }
    for number in 0..WORKERS {
        let (connect, signals) = (cli.connection(), Arc::clone(&signals));
        clients.spawn(async move { worker(connect, &format!("w-{number}"), signals).await });
    }
    let queue = cli.connection().open().await.unwrap();
    for number in 1..=KILLS {
        // It dies while it is busy, as soon as it serves, or before that.
        match number % 4 {
            0 => broker.wait_for_log("this process leads"),
            1 => broker.wait_for_log("serving as the leader"),
            _ => {
                broker.wait_for_log("serving as the leader");
                let life_ms = runtime.random_below(LIFE_MAX_MS);
                runtime.sleep(Duration::from_millis(life_ms)).await;
            }
        }
        broker.kill();
        broker = BrokerProcess::start(&cli, &format!("broker {number}"));
    }
    broker.wait_for_log("serving as the leader");
    // The faults are over, so every task finishes.
    signals.submitted.store(true, Ordering::Relaxed);
    let mut tasks = all(&queue).await;
    let until = runtime.monotonic() + LIMIT;
    while tasks.iter().any(|task| task.status != Status::Completed) && runtime.monotonic() < until {
        runtime.sleep(Duration::from_millis(200)).await;
        tasks = all(&queue).await;
    }
    signals.drained.store(true, Ordering::Relaxed);
    let mut log = ClientLog::default();
    while let Some(client) = clients.join_next().await {
        log.merge(client.unwrap());
    }
    tasks = all(&queue).await;
    let attempts: u64 = tasks.iter().map(|task| u64::from(task.attempt)).sum();
    println!(
        "{KILLS} kills in {:?}: {} of {} submits acknowledged, {} completions acknowledged, {attempts} attempts, {} completions refused, {} unknown",
        runtime.monotonic().saturating_sub(started),
        log.acknowledged(),
        log.submissions.len(),
        log.completed.len(),
        log.refused.len(),
        log.unknown.len(),
    );
    expect_no_breach(&tasks, &log);
    assert!(log.acknowledged() > 300, "there was no load");
}

async fn all(queue: &qo::Queue) -> Vec<Task> {
    let filter = TaskFilter::default();
    queue.list_all(filter).try_collect().await.unwrap()
}
