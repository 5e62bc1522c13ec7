//! What a WASI job costs beyond the queue's own work, beside a process for each task.
//!
//! `cargo xtask bench wasi [--json] [memory|sqlite]`. One worker runs 1,000 tasks one after another. The same queue with a handler that
//! does nothing is the queue's own work. The jobs run a program that ends at once, and one that copies 1 KiB of input to its output,
//! which reads and stores a blob. The process is `cat`, started for each task by the handler of `qo worker --exec`.
//!
//! The goal is about elapsed time, which means little on a busy machine. CPU time is measured beside it, that of processes included.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it panics")]
#![allow(clippy::disallowed_methods, reason = "it reads the clock")]
#![allow(clippy::cast_precision_loss, reason = "it divides small numbers")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use qo::{Connect, Context, Json, Queue, TaskError, TaskHandler, Worker};
use qo_blob::BlobStoreExt as _;
use qo_blob::job::JobInput;
use qo_cli::handlers::exec::{CommandLine, ExecHandler, ExecSettings, Groups};
use qo_cli::handlers::wasi::WasiHandler;
use qo_fixtures::{Report, run_benchmark};
use qo_store::runtime::TokioRuntime;
use qo_wasi::{Programs, Sandbox, SandboxConfig};

/// The allocator of the `qo` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TASKS: usize = 1_000;
const GOAL_MS: &str = "below 2";

/// Ends at once.
const NOTHING: &str = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;

/// Copies standard input to standard output.
const CAT: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $more
      (i32.store (i32.const 0) (i32.const 4096))
      (i32.store (i32.const 4) (i32.const 16384))
      (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
      (if (i32.load (i32.const 8)) (then
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (if (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
        (br $more))))))"#;

fn main() -> ExitCode {
    let scenarios = [
        ("memory", "a store in memory"),
        ("sqlite", "an SQLite file on disk"),
    ];
    run_benchmark("wasi", &scenarios, async |arguments, report| {
        for (name, _) in scenarios {
            if arguments.includes(name) {
                run(name, report).await;
            }
        }
    })
}

/// Does nothing.
struct Noop;

#[async_trait]
impl TaskHandler for Noop {
    fn task_type(&self) -> &'static str {
        "noop"
    }

    async fn handle(&self, _input: Json, _context: Context) -> Result<Option<Json>, TaskError> {
        Ok(None)
    }
}

async fn run(store: &str, report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let url = match store {
        "memory" => "memory:".to_owned(),
        _ => format!("sqlite:{}", folder.path().join("queue.db").display()),
    };
    let queue = Connect::to(url).open().await.unwrap();

    let own = per_task(&queue, Noop, &Json::null()).await;
    report.figure(store, "queue's own work, ms a task", own.elapsed_ms, "");
    report.figure(store, "queue's own work, CPU ms a task", own.cpu_ms, "");
    let mut beyond = |name: &str, took: TimePerTask, goal: &str| {
        let elapsed_ms = took.elapsed_ms - own.elapsed_ms;
        report.figure(
            store,
            &format!("{name}: ms beyond the queue's own"),
            elapsed_ms,
            goal,
        );
        let cpu_ms = took.cpu_ms - own.cpu_ms;
        report.figure(
            store,
            &format!("{name}: CPU ms beyond the queue's own"),
            cpu_ms,
            "",
        );
    };

    let sandbox = Arc::new(Sandbox::new(SandboxConfig::default()).unwrap());
    let blobs = queue.blobs().unwrap();
    let upload = async |bytes: Vec<u8>| blobs.put_bytes(Bytes::from(bytes)).await.unwrap().address;
    let nothing = JobInput::new(upload(wat::parse_str(NOTHING).unwrap()).await);
    let mut copy = JobInput::new(upload(wat::parse_str(CAT).unwrap()).await);
    copy.input_addr = Some(upload(vec![b'x'; 1_024]).await);
    for (name, job) in [
        ("WASI job that ends at once", nothing),
        ("WASI job with 1 KiB of input and output", copy),
    ] {
        let programs = Arc::new(Programs::new(Arc::clone(&sandbox)));
        let handler = WasiHandler::new(Arc::clone(&programs));
        let took = per_task(&queue, handler, &job.to_json().unwrap()).await;
        beyond(name, took, GOAL_MS);
        assert_eq!(programs.compilations(), 1, "each program is compiled once");
    }

    let settings = ExecSettings {
        output_max_bytes: 1 << 20,
        kill_grace: Duration::from_secs(5),
        environment: [("PATH".to_owned(), std::env::var("PATH").unwrap())].into(),
        groups: Groups::default(),
        runtime: TokioRuntime::shared(),
    };
    let command = CommandLine::Program("cat".to_owned(), Vec::new());
    let handler = ExecHandler::new("exec".parse().unwrap(), command, settings);
    let input = Json::parse(format!("\"{}\"", "x".repeat(1_022))).unwrap();
    let took = per_task(&queue, handler, &input).await;
    beyond("process for each task (--exec cat)", took, "");
}

/// What a task takes.
struct TimePerTask {
    elapsed_ms: f64,
    /// CPU time of this process and of those that it started.
    cpu_ms: f64,
}

/// What a task takes with one worker that runs one task at a time.
async fn per_task(queue: &Queue, handler: impl TaskHandler, input: &Json) -> TimePerTask {
    let task_type = handler.task_type().to_owned();
    let requests =
        (0..TASKS).map(|_| qo::SubmitRequest::new(task_type.parse().unwrap(), input.clone()));
    for submitted in queue.submit_many(requests.collect()).await {
        submitted.unwrap();
    }
    let worker = Worker::builder(queue.clone())
        .handler(handler)
        .concurrency(1)
        .no_maintenance()
        .build()
        .unwrap();
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let drained = worker.drain().await.unwrap();
    let elapsed = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    assert_eq!(drained.completed, TASKS as u64, "{drained:?}");
    let per_task_ms = |seconds: f64| seconds * 1_000.0 / TASKS as f64;
    TimePerTask {
        elapsed_ms: per_task_ms(elapsed),
        cpu_ms: per_task_ms(cpu),
    }
}

/// The CPU time of this process and of those that it started and that have ended, on Linux.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in parentheses and may contain spaces. Times are in hundredths of a second.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(4);
    ticks
        .filter_map(|tick| tick.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}
