//! Several processes on one file. The test binary starts itself as a child.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path as FilePath;
use std::process::{Child, ChildStdin, Command, Stdio};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use qo_store::SqliteStore;
use qo_store::runtime::TokioRuntime;

use super::{Fixture, get};

const PROCESSES: usize = 16;
const INCREMENTS: usize = 50;

const ROLE: &str = "QO_SQLITE_TEST_ROLE";
const FILE: &str = "QO_SQLITE_TEST_FILE";

/// A child process that waits for the signal to begin, and is killed if the test ends first.
struct ChildProcess {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl ChildProcess {
    fn start(role: &str, file: &FilePath) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::processes::child", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("READY") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended");
        }
        Self {
            process,
            input,
            output,
        }
    }

    fn begin(&mut self) {
        self.input.take().unwrap().write_all(b"go\n").unwrap();
    }

    fn finish(mut self) {
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run_together(role: &str, file: &FilePath) {
    let mut children: Vec<_> = (0..PROCESSES)
        .map(|_| ChildProcess::start(role, file))
        .collect();
    for child in &mut children {
        child.begin();
    }
    for child in children {
        child.finish();
    }
}

/// Not a test of its own: the code of the child processes. Without a role it returns at once.
#[test]
fn child() {
    let (Ok(role), Ok(file)) = (std::env::var(ROLE), std::env::var(FILE)) else {
        return;
    };
    println!("READY");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(FilePath::new(&file), TokioRuntime::shared()).unwrap();
        match role.as_str() {
            "increment" => increment(&store).await,
            "open" => create_own_object(&store).await,
            "write" => write_forever(&store).await,
            other => panic!("{other}"),
        }
    });
}

async fn increment(store: &SqliteStore) {
    let key = Path::from("counter");
    for _ in 0..INCREMENTS {
        loop {
            let found = store.get(&key).await.unwrap();
            let mode = PutMode::Update(UpdateVersion {
                e_tag: found.meta.e_tag.clone(),
                version: found.meta.version.clone(),
            });
            let count: usize = String::from_utf8(found.bytes().await.unwrap().to_vec())
                .unwrap()
                .parse()
                .unwrap();
            let next = (count + 1).to_string();
            match store.put_opts(&key, next.into(), mode.into()).await {
                Ok(_) => break,
                Err(Error::Precondition { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

async fn create_own_object(store: &SqliteStore) {
    let key = Path::from(format!("process/{}", std::process::id()));
    store
        .put_opts(&key, "here".into(), PutMode::Create.into())
        .await
        .unwrap();
}

/// Writes with many concurrent callers and prints what was acknowledged, until it is killed.
async fn write_forever(store: &SqliteStore) {
    let write = |number: usize| async move {
        let key = Path::from(format!("ack/{number}"));
        let body = format!("body {number}").repeat(number % 500 + 1);
        store.put(&key, body.into()).await.unwrap();
        number
    };
    let mut writes: FuturesUnordered<_> = (0..64).map(write).collect();
    let mut next = 64;
    while let Some(number) = writes.next().await {
        println!("ACK {number}");
        writes.push(write(next));
        next += 1;
    }
}

#[tokio::test]
async fn no_increment_of_16_processes_is_lost() {
    let fixture = Fixture::new();
    super::put(&fixture.store, "counter", "0").await;
    run_together("increment", fixture.store.path());
    let expected = (PROCESSES * INCREMENTS).to_string();
    assert_eq!(get(&fixture.store, "counter").await, expected);
}

#[tokio::test]
async fn processes_can_open_a_new_file_concurrently() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let path = directory.path().join(format!("{round}/qo.db"));
        run_together("open", &path);
        let store = SqliteStore::open(&path, TokioRuntime::shared()).unwrap();
        assert_eq!(store.list(None).count().await, PROCESSES);
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qo.db");
    for round in 0..3 {
        let mut child = ChildProcess::start("write", &path);
        child.begin();
        let mut acknowledged = BTreeSet::new();
        let mut is_killed = false;
        loop {
            let mut line = String::new();
            if child.output.read_line(&mut line).unwrap() == 0 {
                break;
            }
            // The last line may be truncated.
            let number = line.strip_prefix("ACK ").and_then(|n| n.strip_suffix('\n'));
            if let Some(number) = number {
                acknowledged.insert(number.parse::<usize>().unwrap());
            }
            if acknowledged.len() >= 300 + round * 150 && !is_killed {
                child.process.kill().unwrap();
                is_killed = true;
            }
        }
        assert!(is_killed);
        drop(child);
        let store = SqliteStore::open(&path, TokioRuntime::shared()).unwrap();
        for number in acknowledged {
            let expected = format!("body {number}").repeat(number % 500 + 1);
            assert_eq!(get(&store, &format!("ack/{number}")).await, expected);
        }
        let connection = rusqlite::Connection::open(&path).unwrap();
        let integrity: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(integrity, "ok");
    }
}
