//! Three nodes on this machine, as processes with their data on disk, every acknowledgement synced.
//!
//! `cargo xtask bench cluster [--json] [rate|groups|latency|failover|restart|catch-up]`. Clients submit, claim and complete tasks with inputs of
//! 1 KiB through the remote engine. Clients and nodes share the machine's cores. `QO_BENCH_TASKS` sets the number of waiting tasks in
//! `restart` and `catch-up`, a million by default, and scales the other scenarios.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it panics")]
#![allow(clippy::disallowed_methods, reason = "it reads the clock")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#![allow(clippy::panic, clippy::cast_sign_loss)]

mod load;
mod nodes;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use qo::Engine as _;
use qo_fixtures::{Report, cpu_seconds, run_benchmark};

use self::load::{latencies, load, percentile, request, submit};
use self::nodes::Nodes;

/// The allocator of the `qo` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The default number of waiting tasks.
const WAITING: usize = 1_000_000;
/// The rate of which a quarter is sent in `latency`, if `rate` was not measured before.
const RATE_GOAL: f64 = 10_000.0;
const LATENCY_FOR: Duration = Duration::from_secs(15);
const FAILOVERS: usize = 3;
/// How many tasks are submitted and completed before a load beside another job looks whether the job is done.
const LOAD_AT_ONCE: usize = 5_000;
/// The number of groups in `groups`.
const GROUPS: u16 = 16;

fn waiting() -> usize {
    let set = std::env::var("QO_BENCH_TASKS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(WAITING)
}

fn main() -> ExitCode {
    let scenarios = [
        ("rate", "tasks a second, CPU and log bytes a task"),
        ("groups", "the same with 16 groups"),
        ("latency", "submit to completed at a quarter of that rate"),
        (
            "failover",
            "the leader is killed: time to the first success",
        ),
        ("restart", "all nodes start again with many waiting tasks"),
        ("catch-up", "a new node joins by snapshot under load"),
    ];
    run_benchmark("cluster", &scenarios, async |arguments, report| {
        let mut rate = RATE_GOAL;
        if arguments.includes("rate") {
            rate = measure_rate(report, "rate", 1).await;
        }
        if arguments.includes("groups") {
            measure_rate(report, "groups", GROUPS).await;
        }
        if arguments.includes("latency") {
            measure_latency(report, rate / 4.0).await;
        }
        if arguments.includes("failover") {
            measure_failover(report).await;
        }
        if arguments.includes("restart") {
            measure_restart(report).await;
        }
        if arguments.includes("catch-up") {
            measure_catch_up(report).await;
        }
    })
}

async fn measure_rate(report: &mut Report, scenario: &str, groups: u16) -> f64 {
    let nodes = Nodes::with_groups(groups);
    let engine = nodes.engine();
    let count = (waiting() / 5).clamp(1_000, 200_000);
    load(&engine, count / 10).await;
    let leader = nodes.leader();
    let ids = nodes.process_ids();
    let client = std::process::id();
    let before: Vec<f64> = ids.iter().map(|id| cpu_seconds(*id)).collect();
    let client_before = cpu_seconds(client);
    let took = load(&engine, count).await;
    let rate = count as f64 / took.as_secs_f64();
    let each = |seconds: f64| seconds / count as f64 * 1e6;
    report.figure(
        scenario,
        "tasks a second, submit to completed",
        rate,
        "at least 10000",
    );
    report.figure(
        scenario,
        "CPU microseconds a task, client",
        each(cpu_seconds(client) - client_before),
        "",
    );
    for (node, (id, before)) in (1..).zip(ids.iter().zip(&before)) {
        let role = if node == leader { "leader" } else { "follower" };
        let name = format!("CPU microseconds a task, {role} {node}");
        report.figure(scenario, &name, each(cpu_seconds(*id) - before), "");
    }
    let log_bytes = nodes.log_bytes_a_task().await;
    report.figure(scenario, "log bytes a task", log_bytes, "");
    rate
}

async fn measure_latency(report: &mut Report, rate: f64) {
    let nodes = Nodes::start();
    let engine = nodes.engine();
    load(&engine, 1_000).await;
    let times = latencies(&engine, rate, LATENCY_FOR).await;
    let name = |what: &str| format!("{what} at {rate:.0} tasks a second, ms, submit to completed");
    report.figure("latency", &name("median"), percentile(&times, 0.5), "");
    report.figure(
        "latency",
        &name("p99"),
        percentile(&times, 0.99),
        "below 40",
    );
}

async fn measure_failover(report: &mut Report) {
    let mut nodes = Nodes::start();
    let engine = nodes.engine();
    load(&engine, 1_000).await;
    let mut longest = Duration::ZERO;
    for _ in 0..FAILOVERS {
        let leader = nodes.leader();
        nodes.kill(leader);
        let began = Instant::now();
        engine.submit(request()).await.unwrap();
        longest = longest.max(began.elapsed());
        nodes.start_node(leader);
        nodes.wait_until_equal().await;
    }
    let name =
        format!("longest of {FAILOVERS}: the leader is killed to the first success, seconds");
    report.figure("failover", &name, longest.as_secs_f64(), "below 3");
}

async fn measure_restart(report: &mut Report) {
    let mut nodes = Nodes::start();
    let engine = nodes.engine();
    let count = waiting();
    submit(&engine, count).await;
    nodes.wait_until_equal().await;
    for node in 1..=3 {
        nodes.stop(node);
    }
    let began = Instant::now();
    for node in 1..=3 {
        nodes.start_node(node);
    }
    engine.submit(request()).await.unwrap();
    let name = format!("all nodes start with {count} waiting tasks, to the first success, seconds");
    report.figure("restart", &name, began.elapsed().as_secs_f64(), "below 10");
    let memory = nodes.memory_mib(nodes.leader());
    report.figure("restart", "memory of the leader, MiB", memory, "");
}

async fn measure_catch_up(report: &mut Report) {
    let mut nodes = Nodes::start();
    let engine = nodes.engine();
    let count = waiting();
    submit(&engine, count).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let working = tokio::spawn({
        let (engine, stop) = (engine.clone(), stop.clone());
        async move {
            let mut done = 0_usize;
            while !stop.is_cancelled() {
                load(&engine, LOAD_AT_ONCE).await;
                done += LOAD_AT_ONCE;
            }
            done
        }
    });
    let began = Instant::now();
    nodes.join_fourth().await;
    let took = began.elapsed().as_secs_f64();
    stop.cancel();
    let done = working.await.unwrap();
    let name = format!("a new node catches up with {count} tasks under load, seconds");
    report.figure("catch-up", &name, took, "");
    report.figure(
        "catch-up",
        "tasks a second meanwhile",
        done as f64 / took,
        "",
    );
}
