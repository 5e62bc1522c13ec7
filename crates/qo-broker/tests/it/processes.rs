//! Two processes on one JSON object, each behind a store that loses replies, duplicates writes and refuses without a reason. Every
//! acknowledged task exists, and each is completed once. This test binary starts itself again as the children.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_check::{ClientLog, CompletedAttempt, FinalState, StartedAttempt, Submission};
use qo_core::{Rejection, Status, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_fixtures::TestStore;
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::wrap::{FaultKind, FaultPlan, FaultRule, FaultStore};
use qo_store::{OpenOptions, open};

use super::engines::{Journal, WAIT_MAX, all_tasks, claim_request, job, json};

const PROCESSES: usize = 2;
/// The number of tasks that each of them submits.
const TASKS: usize = 40;
/// The share of requests that each kind of fault strikes.
const FAULT_RATE: f64 = 0.02;
/// A claim whose reply was lost returns after this time.
const LEASE_MS: u64 = 30_000;

const STORE: &str = "QO_JSON_TEST_STORE";
const SEED: &str = "QO_JSON_TEST_SEED";
/// The worker that [`claim_request`] names.
const WORKER: &str = "w-1";
const OUTPUT: &str = "[1]";

/// A process that is killed if the test ends first.
struct ChildProcess(Child);

impl ChildProcess {
    fn start(address: &TestStore, seed: usize) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child", "--nocapture"])
            .env(STORE, address.url())
            .env(SEED, seed.to_string())
            .envs(address.variables().iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(process.unwrap())
    }

    /// Reads its calls and the replies from its output, until it exits.
    fn log(mut self) -> ClientLog {
        let mut log = ClientLog::default();
        let mut faults = 0;
        for line in BufReader::new(self.0.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["SUBMITTED", id] => {
                    let id = id.parse().unwrap();
                    log.submissions.push(Submission {
                        id: Some(id),
                        key: None,
                        input: job("a").input.as_str().to_owned(),
                        acknowledged: vec![id],
                    });
                }
                ["STARTED", id, attempt] => log.started.push(StartedAttempt {
                    task: id.parse().unwrap(),
                    number: attempt.parse().unwrap(),
                    worker: WORKER.to_owned(),
                }),
                ["COMPLETED", id, attempt] => log.completed.push(CompletedAttempt {
                    task: id.parse().unwrap(),
                    number: attempt.parse().unwrap(),
                    output: OUTPUT.to_owned(),
                }),
                ["UNKNOWN", id, attempt] => {
                    let attempt = attempt.parse().unwrap();
                    log.unknown.push((id.parse().unwrap(), attempt));
                }
                ["FAULTS", count] => faults = count.parse().unwrap(),
                _ => {}
            }
        }
        let status = self.0.wait().unwrap();
        assert!(status.success(), "a process exited with {status}");
        assert!(faults > 0, "there were no faults");
        log
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The faults of a store that keeps its promises.
fn plan(rate: f64) -> FaultPlan {
    let transient = FaultPlan::none().with_each(FaultKind::TRANSIENT.iter().copied(), rate);
    let plan = transient.with_each([FaultKind::TornRead], rate);
    plan.with(FaultRule::new(FaultKind::Unavailable, rate / 5.0))
}

/// Not a test of its own: the program of the children. Without a store it returns at once.
#[test]
fn child() {
    let (Ok(url), Ok(seed)) = (std::env::var(STORE), std::env::var(SEED)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let runtime = TokioRuntime::shared();
        let options = OpenOptions::from_env(Arc::clone(&runtime));
        let store = Arc::new(FaultStore::new(
            open(&url, &options).unwrap().objects,
            Arc::clone(&runtime),
            plan(FAULT_RATE),
            seed.parse().unwrap(),
        ));
        let objects: Arc<dyn ObjectStore> = Arc::<FaultStore>::clone(&store);
        let engine = Journal::Json.open(objects, &runtime).await.unwrap();
        let load = run_load(&engine, runtime.as_ref());
        tokio::time::timeout(WAIT_MAX * 4, load)
            .await
            .expect("all tasks are completed in time");
        engine.close().await;
        println!("FAULTS {}", store.injected().len());
    });
}

/// Submits and works until all tasks of all processes are completed, and prints the replies.
async fn run_load(engine: &BrokerEngine, runtime: &dyn Runtime) {
    let has_submitted = AtomicBool::new(false);
    let submits = async {
        for _ in 0..TASKS {
            let id = runtime.new_task_id();
            let request = SubmitRequest {
                id: Some(id),
                ..job("a")
            };
            while let Err(error) = engine.submit(request.clone()).await {
                assert!(matches!(error, EngineError::Store(_)), "{error}");
            }
            println!("SUBMITTED {id}");
        }
        has_submitted.store(true, Ordering::Relaxed);
    };
    let works = async {
        while !(has_submitted.load(Ordering::Relaxed) && are_all_done(engine).await) {
            let claim = ClaimRequest {
                lease_ms: Some(LEASE_MS),
                ..claim_request("a", 3, 200)
            };
            let tasks = match engine.claim(&claim).await {
                Ok(tasks) => tasks,
                Err(EngineError::Store(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            for task in tasks {
                println!("STARTED {} {}", task.id, task.attempt);
                complete(engine, task.id, task.lease_id.unwrap(), task.attempt).await;
            }
        }
    };
    futures_util::future::join(submits, works).await;
}

/// Completes an attempt, and retries while the reply is unknown.
async fn complete(engine: &BrokerEngine, id: TaskId, lease: qo_core::LeaseId, attempt: u32) {
    loop {
        match engine.complete(id, lease, Some(json(OUTPUT))).await {
            Ok(done) => {
                assert_eq!((done.status, done.attempt), (Status::Completed, attempt));
                return println!("COMPLETED {id} {attempt}");
            }
            Err(EngineError::Store(_)) => println!("UNKNOWN {id} {attempt}"),
            // The call before has completed it, or the lease expired.
            Err(EngineError::Rejected(Rejection::LeaseLost { .. })) => {
                return println!("UNKNOWN {id} {attempt}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn are_all_done(engine: &BrokerEngine) -> bool {
    let Ok(stats) = engine.stats().await else {
        return false;
    };
    let done = stats
        .queues
        .values()
        .filter_map(|queue| queue.statuses.get(&Status::Completed))
        .sum::<u64>();
    done == (PROCESSES * TASKS) as u64
}

async fn processes_share(address: TestStore) {
    let children: Vec<_> = (0..PROCESSES)
        .map(|seed| ChildProcess::start(&address, seed))
        .collect();
    let reading = tokio::task::spawn_blocking(move || {
        let mut log = ClientLog::default();
        for child in children {
            log.merge(child.log());
        }
        log
    });
    let log = reading.await.unwrap();
    assert_eq!(log.acknowledged(), PROCESSES * TASKS);
    let engine = Journal::Json
        .open(address.open().objects, &TokioRuntime::shared())
        .await
        .unwrap();
    let breaches = FinalState {
        tasks: &all_tasks(&engine).await,
        log: &log,
        ends: &[Status::Completed],
        has_one_clock: false,
        knows_completions: true,
    }
    .check();
    assert!(breaches.is_empty(), "{breaches}");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_an_object_on_sqlite() {
    processes_share(TestStore::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_an_object_on_seaweedfs() {
    processes_share(TestStore::seaweedfs("shared").with_prefix("shared")).await;
}
