//! Two processes on one JSON object, each behind a store that loses answers, repeats writes and refuses for no reason: every task
//! exactly once, and every acknowledged one there. This test binary starts itself again in the role of a child.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_core::{Rejection, Status, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::{Runtime, RuntimeExt, TokioRuntime};
use qo_store::wrap::FaultStore;
use qo_store::{OpenOptions, open};
use qo_testkit::SeaweedFs;

use super::faults::{Told, check, plan};
use super::place::{Journal, PATIENCE, job, wish};

const PROCESSES: usize = 2;
/// How many tasks each of them submits.
const TASKS: usize = 40;
/// How often each kind of fault strikes, as a part of all requests that it can strike.
const FAULTS: f64 = 0.02;
/// A claim whose answer was lost comes back after so long.
const LEASE_MS: u64 = 30_000;

const STORE: &str = "QO_JSON_TEST_STORE";
const SEED: &str = "QO_JSON_TEST_SEED";
/// How a child's store is reached, beside its URL.
const VARIABLES: [&str; 4] = [
    "S3_ENDPOINT",
    "S3_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

/// A store that every process can open by itself.
struct Shared {
    url: String,
    variables: Vec<(&'static str, String)>,
}

impl Shared {
    fn open(&self) -> Arc<dyn ObjectStore> {
        let options = OpenOptions::new(TokioRuntime::shared());
        let options = self
            .variables
            .iter()
            .fold(options, |options, (name, value)| {
                options.with_var(*name, value.clone())
            });
        open(&self.url, &options).unwrap().objects
    }
}

/// A process that is killed if the test ends first.
struct Other(Child);

impl Other {
    fn start(shared: &Shared, seed: usize) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "state::processes::child", "--nocapture"])
            .env(STORE, &shared.url)
            .env(SEED, seed.to_string())
            .envs(shared.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(process.unwrap())
    }

    /// What it says, until it ends.
    fn journal(mut self, told: &mut Told) {
        let mut faults = 0;
        for line in BufReader::new(self.0.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["SUBMITTED", id] => {
                    told.submitted.insert(id.parse().unwrap());
                }
                ["COMPLETED", id, attempt] => {
                    let attempts = told.completed.entry(id.parse().unwrap()).or_default();
                    attempts.push(attempt.parse().unwrap());
                }
                ["DOUBT", id] => {
                    told.in_doubt.insert(id.parse().unwrap());
                }
                ["FAULTS", count] => faults = count.parse().unwrap(),
                _ => {}
            }
        }
        let status = self.0.wait().unwrap();
        assert!(status.success(), "a process ended with {status}");
        assert!(faults > 0, "there were no faults");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: what the other processes do. Without a store it returns at once.
#[test]
fn child() {
    let (Ok(url), Ok(seed)) = (std::env::var(STORE), std::env::var(SEED)) else {
        return;
    };
    let variables = VARIABLES
        .into_iter()
        .filter_map(|name| Some((name, std::env::var(name).ok()?)))
        .collect();
    let shared = Shared { url, variables };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let runtime = TokioRuntime::shared();
        let store = Arc::new(FaultStore::new(
            shared.open(),
            Arc::clone(&runtime),
            plan(FAULTS),
            seed.parse().unwrap(),
        ));
        let objects: Arc<dyn ObjectStore> = Arc::<FaultStore>::clone(&store);
        let engine = Journal::Json.open(objects, &runtime).await.unwrap();
        let bustle = bustle(&engine, runtime.as_ref());
        tokio::time::timeout(PATIENCE * 4, bustle)
            .await
            .expect("all tasks are done in the end");
        engine.close().await;
        println!("FAULTS {}", store.injected().len());
    });
}

/// Submits and works until all tasks of all processes are done, and says what it was told.
async fn bustle(engine: &BrokerEngine, runtime: &dyn Runtime) {
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
                ..wish("a", 3, 200)
            };
            let tasks = match engine.claim(&claim).await {
                Ok(tasks) => tasks,
                Err(EngineError::Store(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            for task in tasks {
                complete(engine, task.id, task.lease_id.unwrap(), task.attempt).await;
            }
        }
    };
    futures_util::future::join(submits, works).await;
}

/// Completes an attempt, however often nobody can say whether it is.
async fn complete(engine: &BrokerEngine, id: TaskId, lease: qo_core::LeaseId, attempt: u32) {
    loop {
        match engine.complete(id, lease, None).await {
            Ok(done) => {
                assert_eq!((done.status, done.attempt), (Status::Completed, attempt));
                return println!("COMPLETED {id} {attempt}");
            }
            Err(EngineError::Store(_)) => println!("DOUBT {id}"),
            // The try before has done it, or it came after its time.
            Err(EngineError::Rejected(Rejection::LeaseLost { .. })) => {
                return println!("DOUBT {id}");
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

async fn processes_share(shared: &Shared) {
    let others: Vec<_> = (0..PROCESSES)
        .map(|seed| Other::start(shared, seed))
        .collect();
    let told = tokio::task::spawn_blocking(move || {
        let mut told = Told::default();
        for other in others {
            other.journal(&mut told);
        }
        told
    });
    let told = told.await.unwrap();
    assert_eq!(told.submitted.len(), PROCESSES * TASKS);
    let witness = Journal::Json
        .open(shared.open(), &TokioRuntime::shared())
        .await;
    let witness = witness.unwrap();
    check(&witness, &told, PROCESSES * TASKS).await;
    witness.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_an_object_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Shared {
        url: format!("sqlite:{}", folder.path().join("qo.db").display()),
        variables: Vec::new(),
    };
    processes_share(&shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_an_object_on_seaweedfs() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("shared").unwrap();
    let values = [
        server.endpoint().to_owned(),
        "us-east-1".to_owned(),
        server.access_key().to_owned(),
        server.secret_key().to_owned(),
    ];
    let shared = Shared {
        url: format!("s3://{bucket}/shared"),
        variables: VARIABLES.into_iter().zip(values).collect(),
    };
    processes_share(&shared).await;
}
