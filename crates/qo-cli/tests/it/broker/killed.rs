//! A broker is killed twenty times under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use qo::{Status, Task, TaskFilter};
use qo_store::runtime::{RuntimeExt, TokioRuntime};

use super::LIMIT;
use super::checker::check;
use super::clients::{Notes, Signals, submitter, worker};
use super::process::BrokerProcess;
use crate::e2e::store::TestStore;

const KILLS: usize = 20;
const SUBMITTERS: usize = 12;
const WORKERS: usize = 4;
/// Maximum lifetime of a broker.
const LIFE_MAX_MS: u64 = 1_500;
/// A takeover takes about 1.5 times as long. With the default, takeovers would take most of the test.
const ANSWER_MS: &str = "600";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_runs_twice_at_once() {
    let store = TestStore::sqlite()
        .with_engine("slate")
        .with_variable("QO_BROKER_ANSWER_MS", ANSWER_MS);
    let runtime = TokioRuntime::shared();
    let started = runtime.monotonic();
    let mut broker = BrokerProcess::leader(&store, "broker 0");
    let signals = Arc::new(Signals::default());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..SUBMITTERS {
        clients.spawn(submitter(store.connection(), Arc::clone(&signals)));
    }
    for number in 0..WORKERS {
        let (connect, signals) = (store.connection(), Arc::clone(&signals));
        clients.spawn(async move { worker(connect, &format!("w-{number}"), signals).await });
    }
    let queue = store.connection().open().await.unwrap();
    for number in 1..=KILLS {
        // Kill it before it serves, as soon as it serves, or under load.
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
        broker = BrokerProcess::start(&store, &format!("broker {number}"));
    }
    broker.wait_for_log("serving as the leader");
    // There are no more faults, so all submitted tasks finish.
    signals.submitted.store(true, Ordering::Relaxed);
    let mut tasks = all(&queue).await;
    let until = runtime.monotonic() + LIMIT;
    while tasks.iter().any(|task| task.status != Status::Completed) && runtime.monotonic() < until {
        runtime.sleep(Duration::from_millis(200)).await;
        tasks = all(&queue).await;
    }
    signals.drained.store(true, Ordering::Relaxed);
    let mut notes = Notes::default();
    while let Some(client) = clients.join_next().await {
        notes.add(client.unwrap());
    }
    tasks = all(&queue).await;
    let attempts: u64 = tasks.iter().map(|task| u64::from(task.attempt)).sum();
    println!(
        "{KILLS} kills in {:?}: {} of {} submits acknowledged, {} completions acknowledged, {attempts} attempts, {} completions rejected, {} calls failed",
        runtime.monotonic().saturating_sub(started),
        notes.acknowledged.len(),
        notes.asked.len(),
        notes.completed.len(),
        notes.refused.len(),
        notes.given_up,
    );
    let wrong = check(&notes, &tasks);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(notes.acknowledged.len() > 300, "too little load");
}

async fn all(queue: &qo::Queue) -> Vec<Task> {
    let filter = TaskFilter::default();
    queue.list_all(filter).try_collect().await.unwrap()
}
