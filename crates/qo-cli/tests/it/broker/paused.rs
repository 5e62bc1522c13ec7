//! A leader that sleeps past its takeover and wakes up again answers for nothing.

use std::collections::BTreeMap;

use qo_store::runtime::TokioRuntime;
use rustix::process::Signal;
use serde_json::Value;

use super::process::{BrokerProcess, get, http};
use super::task;
use crate::e2e::cli::TestCli;

/// How many requests of each sort wait for the sleeper's awakening.
const WAITING: usize = 4;
/// How long to repeat requests after that.
const ASKED_SECONDS: u64 = 5;

/// On a real S3 server, because on SQLite a process that is stopped during a write blocks all other writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_asleep_serves_nothing() {
    let cli = TestCli::seaweedfs().with_engine("slate");
    let runtime = TokioRuntime::shared();
    let sleeper = BrokerProcess::leader(&cli, "sleeper");
    let mut successor = BrokerProcess::standby(&cli, "successor");
    let queue = cli.connection().open().await.unwrap();
    let first = queue.submit(task()).await.unwrap().task.id;

    sleeper.signal(Signal::STOP);
    successor.wait_for_log("serving as the leader");
    // The client notices that its server does not respond, and continues at the next one.
    let second = queue.submit(task()).await.unwrap().task.id;

    // These lie in wait for it: they are the first thing that it sees.
    let mut answers = tokio::task::JoinSet::new();
    let mut wanted = Vec::new();
    for _ in 0..WAITING {
        let id = task().id.unwrap();
        wanted.push(id);
        let submit = http()
            .post(format!("{}/v1/tasks", sleeper.url))
            .header("content-type", "application/json")
            .body(format!(r#"{{"task_type":"work","id":"{id}"}}"#));
        for request in [
            submit,
            http().get(format!("{}/v1/tasks/{first}", sleeper.url)),
            http().get(format!("{}/v1/stats", sleeper.url)),
            http()
                .post(format!("{}/v1/claim", sleeper.url))
                .header("content-type", "application/json")
                .body(r#"{"worker_id":"w"}"#),
        ] {
            answers.spawn(async move {
                let answer = request.send().await.unwrap();
                (answer.status().as_u16(), answer.text().await.unwrap())
            });
        }
    }
    // They have arrived once a later request has been served by another process.
    queue.get(second).await.unwrap();
    sleeper.signal(Signal::CONT);
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let mut judge = |(status, text): (u16, String)| {
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or("none").to_owned();
        assert_eq!((status, code.as_str()), (503, "not_leader"), "{text}");
        *told.entry(code).or_default() += 1;
    };
    while let Some(answer) = answers.join_next().await {
        judge(answer.unwrap());
    }
    let until = runtime.monotonic() + std::time::Duration::from_secs(ASKED_SECONDS);
    while runtime.monotonic() < until {
        judge(get(format!("{}/v1/tasks/{first}", sleeper.url)).await);
    }
    println!("what the old leader answered: {told:?}");
    sleeper.wait_for_log("standing down");
    sleeper.wait_for_log("standing by");
    let (status, text) = get(format!("{}/readyz", sleeper.url)).await;
    assert_eq!(status, 503);
    assert!(text.contains("standby"), "{text}");
    for id in wanted {
        let error = queue.get(id).await.unwrap_err();
        assert_eq!(error.kind(), qo::ErrorKind::NotFound, "it was written");
    }

    // It is a standby like any other, and finds all that its successor acknowledged.
    successor.kill();
    let third = queue.submit(task()).await.unwrap().task.id;
    for id in [first, second, third] {
        assert_eq!(queue.get(id).await.unwrap().status, qo::Status::Pending);
    }
}
