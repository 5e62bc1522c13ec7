//! The client process: it submits, claims and completes in batches through the remote engine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use qo::{ClaimRequest, Engine, Json, Operation, SubmitRequest};
use qo_remote::RemoteConfig;
use qo_remote::RemoteEngine;
use qo_store::runtime::TokioRuntime;

use crate::{SCENARIO, SERVE};
use qo_fixtures::{Report, cpu_seconds};

const WARM_UP: usize = 20_000;
const TASKS: usize = 150_000;
const INPUT_BYTES: usize = 1_024;
const CLIENTS: Clients = Clients {
    submitters: 8,
    workers: 16,
    at_once: 500,
};

/// The clients of this process.
struct Clients {
    submitters: usize,
    workers: usize,
    /// The number of tasks in one submit and in one claim.
    at_once: usize,
}

/// The server process.
struct Other {
    process: Child,
    url: String,
}

impl Other {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        Self {
            process,
            url: url.trim().to_owned(),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

pub(crate) async fn run(report: &mut Report) {
    let server = Other::start();
    let config = RemoteConfig::parse(&server.url).unwrap();
    let engine = RemoteEngine::new(config, TokioRuntime::shared()).unwrap();
    load(&engine, WARM_UP).await;
    let ids = [std::process::id(), server.process.id()];
    let before = ids.map(cpu_seconds);
    let started = Instant::now();
    load(&engine, TASKS).await;
    let rate = TASKS as f64 / started.elapsed().as_secs_f64();
    report.figure(
        SCENARIO,
        "tasks a second, submit to completed",
        rate,
        "at least 12000",
    );
    let names = ["client", "server"];
    let after = ids.map(cpu_seconds);
    for (name, (before, after)) in names.into_iter().zip(before.into_iter().zip(after)) {
        let each_us = (after - before) / TASKS as f64 * 1e6;
        let name = format!("CPU microseconds a task, {name}");
        report.figure(SCENARIO, &name, each_us, "");
    }
}

async fn load(engine: &RemoteEngine, count: usize) {
    futures_util::future::join(submit(engine, count), work(engine, count)).await;
}

async fn submit(engine: &RemoteEngine, count: usize) {
    let input = Json::parse(format!("\"{}\"", "x".repeat(INPUT_BYTES - 2))).unwrap();
    futures_util::stream::iter(0..count.div_ceil(CLIENTS.at_once))
        .for_each_concurrent(CLIENTS.submitters, |_| async {
            let request = || SubmitRequest::new("noop".parse().unwrap(), input.clone());
            let batch = (0..CLIENTS.at_once).map(|_| request()).collect();
            for submitted in engine.submit_many(batch).await {
                submitted.unwrap();
            }
        })
        .await;
}

async fn work(engine: &RemoteEngine, count: usize) {
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..CLIENTS.workers {
        let mut claim = ClaimRequest::new(
            format!("w-{number}").parse().unwrap(),
            vec!["noop".parse().unwrap()],
        );
        claim.wait_ms = 1_000;
        claim.max = CLIENTS.at_once;
        let (engine, done) = (engine.clone(), Arc::clone(&done));
        workers.spawn(async move {
            while done.load(Ordering::Relaxed) < count {
                let tasks = engine.claim(&claim).await.unwrap();
                let completions = tasks
                    .iter()
                    .map(|task| {
                        let operation = Operation::Complete {
                            lease: task.lease_id.unwrap(),
                            output: Some(Json::null()),
                        };
                        (task.id, operation)
                    })
                    .collect();
                for completed in engine.act_many(completions).await {
                    completed.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    // The last workers wait for work in vain. The measurement ends with the last completion.
    while done.load(Ordering::Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    workers.abort_all();
}
