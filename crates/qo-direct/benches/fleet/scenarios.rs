//! The scenarios, and the figures of each.

use std::future::Future;
use std::time::Duration;

use qo_engine::Engine;
use qo_engine::api::{SubmitRequest, When};
use qo_fixtures::{BenchmarkArgs, Report};
use qo_store::runtime::Runtime;
use qo_store::wrap::{Counts, Operation, Prices};

use crate::fleet::{Fleet, Work, request, task_type};

const MONTH_SECONDS: f64 = 30.0 * 24.0 * 3600.0;
/// A short task on a worker with four slots.
const SHORT: Work = Work {
    takes: Duration::from_secs(1),
    failures: 0,
    slots: 4,
};
const LIMIT: Duration = Duration::from_hours(1);

/// Runs a future in virtual time, in a thread of its own.
fn in_virtual_time<T: Send + 'static, F: Future<Output = T>>(
    make: impl FnOnce() -> F + Send + 'static,
) -> T {
    let run = move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async { make().await })
    };
    std::thread::spawn(run).join().unwrap()
}

pub(crate) fn run(args: &BenchmarkArgs, report: &mut Report) {
    let prints_counts = args.includes("counts");
    let wanted = |name: &str| args.includes(name);
    let show = |name: &str, counts: &Counts| {
        if prints_counts {
            eprintln!("{name}\n{counts}");
        }
    };
    let mut requests_of_one = None;
    for workers in [1, 10, 100, 1_000] {
        let name = workers.to_string();
        if !wanted(name.as_str()) {
            continue;
        }
        let tasks = workers as u64 * 200;
        let (counts, took) = in_virtual_time(move || backlog(workers, tasks));
        show("backlog", &counts);
        report.figure(&name, "backlog: seconds", took, "");
        let requests = add_load(report, &name, &counts, tasks);
        let first = *requests_of_one.get_or_insert(requests);
        report.figure(
            &name,
            "backlog: requests a task, to those of the first",
            requests / first,
            "at most 1.2",
        );
        run_special(workers, report, &show);
        // An hour of 10,000 running tasks takes too long to simulate.
        if workers < 1_000 {
            run_long(workers, report, &show);
        }
    }
    for (name, foreign) in [("foreign", true), ("own", false)] {
        if wanted(name) {
            run_trickle(name, foreign, report, &show);
        }
    }
    if wanted("million") {
        for workers in [100, 1_000] {
            let name = format!("1M/{workers}");
            let (counts, tasks, seconds) = in_virtual_time(move || deep(workers));
            show(&name, &counts);
            report.figure(&name, "tasks a second", tasks as f64 / seconds, "");
            add_load_without_submit(report, &name, &counts, tasks);
        }
    }
    if wanted("history") {
        let (found, counts) = in_virtual_time(history);
        show("history", &counts);
        report.figure(
            "history",
            "minutes until the task is found",
            found / 60.0,
            "at most 10",
        );
        let dollars = counts.dollars(&Prices::default()) / found * MONTH_SECONDS;
        report.figure(
            "history",
            "dollars a month for the bucket and one worker",
            dollars,
            "",
        );
    }
}

/// Delayed and retried tasks on a fleet.
fn run_special(workers: usize, report: &mut Report, show: &dyn Fn(&str, &Counts)) {
    let name = workers.to_string();
    let counts = in_virtual_time(move || delayed(workers));
    show("delayed", &counts);
    let ready = counts.of("ready", Operation::Put).requests as f64;
    report.figure(
        &name,
        "delayed: ready PUT a task",
        ready / DELAYED as f64,
        "at most 1.2",
    );
    report.figure(
        &name,
        "delayed: LIST a task",
        lists(&counts) / DELAYED as f64,
        "",
    );
    let counts = in_virtual_time(move || retried(workers));
    show("retried", &counts);
    let tasks = RETRIED as f64;
    report.figure(&name, "retried: PUT a task", puts(&counts) / tasks, "");
    report.figure(&name, "retried: LIST a task", lists(&counts) / tasks, "");
}

/// Long tasks on a fleet.
fn run_long(workers: usize, report: &mut Report, show: &dyn Fn(&str, &Counts)) {
    let name = workers.to_string();
    let (counts, minutes) = in_virtual_time(move || long(workers));
    show("long", &counts);
    let reads = counts.of("tasks", Operation::Get).requests as f64;
    let running = (workers * LONG_SLOTS) as f64;
    report.figure(
        &name,
        "long: GET of the task a minute and task",
        reads / minutes / running,
        "at most 2.5",
    );
    let lists = counts.of("leases", Operation::List).requests as f64;
    report.figure(
        &name,
        "long: LIST of the leases a minute",
        lists / minutes,
        "",
    );
}

/// One task per second of 20 types that the fleet serves, or of a type that nobody serves.
fn run_trickle(name: &str, foreign: bool, report: &mut Report, show: &dyn Fn(&str, &Counts)) {
    let workers = 100;
    let (counts, seconds, tasks, median) = in_virtual_time(move || trickle(workers, foreign));
    show(name, &counts);
    let dollars = counts.dollars(&Prices::default());
    // A task costs 5 PUT and 1 GET by itself, or 2 PUT while nobody serves it.
    let per_task = if foreign {
        2.0 * 5e-6
    } else {
        5.0 * 5e-6 + 0.4e-6
    };
    let idle = (dollars - per_task * tasks) / workers as f64;
    report.figure(
        name,
        "dollars a month and idle worker",
        idle / seconds * MONTH_SECONDS,
        "at most 2.5",
    );
    let minutes = seconds / 60.0 * workers as f64;
    report.figure(
        name,
        "LIST a minute and worker",
        lists(&counts) / minutes,
        "",
    );
    report.figure(name, "GET a minute and worker", gets(&counts) / minutes, "");
    report.figure(name, "PUT a minute and worker", puts(&counts) / minutes, "");
    if !foreign {
        report.figure(name, "seconds from submit to completed, median", median, "");
    }
}

fn requests_of(counts: &Counts, operations: &[Operation]) -> f64 {
    let requests = operations
        .iter()
        .map(|operation| counts.total(*operation).requests);
    requests.sum::<u64>() as f64
}

fn puts(counts: &Counts) -> f64 {
    requests_of(
        counts,
        &[Operation::Put, Operation::Create, Operation::Swap],
    )
}

fn gets(counts: &Counts) -> f64 {
    requests_of(counts, &[Operation::Get, Operation::Head])
}

fn lists(counts: &Counts) -> f64 {
    requests_of(counts, &[Operation::List])
}

fn add_reads_and_lost_claims(report: &mut Report, name: &str, counts: &Counts, tasks: f64) {
    report.figure(name, "GET a task", gets(counts) / tasks, "");
    report.figure(name, "LIST a task", lists(counts) / tasks, "");
    let lost = counts.of("tasks", Operation::Swap).refused as f64;
    report.figure(
        name,
        "lost claims, as a part of all",
        lost / (tasks + lost),
        "at most 0.05",
    );
}

/// Adds the figures of a load, and returns its requests a task.
fn add_load(report: &mut Report, name: &str, counts: &Counts, tasks: u64) -> f64 {
    let tasks = tasks as f64;
    report.figure(name, "PUT a task", puts(counts) / tasks, "");
    add_reads_and_lost_claims(report, name, counts, tasks);
    let dollars = counts.dollars(&Prices::default()) / tasks * 1e6;
    report.figure(name, "dollars a million tasks", dollars, "at most 27.5");
    (puts(counts) + gets(counts) + lists(counts)) / tasks
}

/// Adds the figures of a load whose tasks existed before, with the two PUTs of each submit.
fn add_load_without_submit(report: &mut Report, name: &str, counts: &Counts, tasks: u64) {
    let count = tasks as f64;
    report.figure(
        name,
        "PUT a task, submit included",
        puts(counts) / count + 2.0,
        "",
    );
    add_reads_and_lost_claims(report, name, counts, count);
    let dollars = counts.dollars(&Prices::default()) / count * 1e6 + 10.0;
    report.figure(
        name,
        "dollars a million tasks, submit included",
        dollars,
        "at most 27.5",
    );
}

/// Waiting workers receive a burst of short tasks.
async fn backlog(workers: usize, tasks: u64) -> (Counts, f64) {
    let mut fleet = Fleet::new(0, 0);
    fleet.start(workers, &[task_type(0)], SHORT).await;
    let (submitter, _) = fleet.engine();
    // Everybody is on the roster.
    fleet.pass(Duration::from_mins(2)).await;
    let before = fleet.counts();
    let requests = (0..tasks).map(|_| request(task_type(0))).collect();
    for submitted in submitter.submit_many(requests).await {
        submitted.unwrap();
    }
    let took = fleet.until_completed(tasks, LIMIT).await;
    let counts = fleet.counts().since(&before);
    fleet.kill();
    (counts, took.map_or(f64::NAN, |took| took.as_secs_f64()))
}

const DELAYED: u64 = 20;

/// Delayed tasks that become due one after another.
async fn delayed(workers: usize) -> Counts {
    let mut fleet = Fleet::new(0, 0);
    fleet.start(workers, &[task_type(0)], SHORT).await;
    let (submitter, _) = fleet.engine();
    let before = fleet.counts();
    for number in 0..DELAYED {
        let task = SubmitRequest {
            available: When::InMillis(20_000 + number * 3_000),
            ..request(task_type(0))
        };
        submitter.submit(task).await.unwrap();
    }
    fleet.until_completed(DELAYED, LIMIT).await.unwrap();
    let counts = fleet.counts().since(&before);
    fleet.kill();
    counts
}

const RETRIED: u64 = 100;

/// Tasks of which each fails twice.
async fn retried(workers: usize) -> Counts {
    let mut fleet = Fleet::new(0, 0);
    let work = Work {
        failures: 2,
        ..SHORT
    };
    fleet.start(workers, &[task_type(0)], work).await;
    let (submitter, _) = fleet.engine();
    let before = fleet.counts();
    let requests = (0..RETRIED).map(|_| request(task_type(0))).collect();
    for submitted in submitter.submit_many(requests).await {
        submitted.unwrap();
    }
    fleet.until_completed(RETRIED, LIMIT).await.unwrap();
    let counts = fleet.counts().since(&before);
    fleet.kill();
    counts
}

const LONG_SLOTS: usize = 4;

/// Every worker runs tasks that take longer than their leases.
async fn long(workers: usize) -> (Counts, f64) {
    let mut fleet = Fleet::new(0, 0);
    let work = Work {
        takes: Duration::from_hours(1),
        failures: 0,
        slots: LONG_SLOTS,
    };
    fleet.start(workers, &[task_type(0)], work).await;
    let (submitter, _) = fleet.engine();
    let requests = (0..workers * LONG_SLOTS)
        .map(|_| request(task_type(0)))
        .collect();
    for submitted in submitter.submit_many(requests).await {
        submitted.unwrap();
    }
    fleet.pass(Duration::from_mins(3)).await;
    let before = fleet.counts();
    let time = Duration::from_mins(10);
    fleet.pass(time).await;
    let counts = fleet.counts().since(&before);
    fleet.kill();
    (counts, time.as_secs_f64() / 60.0)
}

/// One task a second for ten minutes, of 20 types that the workers serve, or of another one.
async fn trickle(workers: usize, foreign: bool) -> (Counts, f64, f64, f64) {
    let mut fleet = Fleet::new(0, 0);
    let types: Vec<_> = (0..20).map(task_type).collect();
    fleet.start(workers, &types, SHORT).await;
    let (submitter, _) = fleet.engine();
    // The list of peers and the first pages are paid once.
    fleet.pass(Duration::from_mins(2)).await;
    let before = fleet.counts();
    let seconds = 600;
    let began = fleet.runtime.monotonic();
    let mut waits = Vec::new();
    for second in 0..seconds {
        let kind = if foreign { 99 } else { second % 20 };
        let count = fleet.completed();
        submitter.submit(request(task_type(kind))).await.unwrap();
        let submitted = fleet.runtime.monotonic();
        let next = began + Duration::from_secs(second as u64 + 1);
        if !foreign && second % 7 == 0 && fleet.until_completed(count + 1, LIMIT).await.is_some() {
            waits.push(
                fleet
                    .runtime
                    .monotonic()
                    .saturating_sub(submitted)
                    .as_secs_f64(),
            );
        }
        fleet
            .pass(next.saturating_sub(fleet.runtime.monotonic()))
            .await;
    }
    let elapsed = fleet
        .runtime
        .monotonic()
        .saturating_sub(began)
        .as_secs_f64();
    let counts = fleet.counts().since(&before);
    fleet.kill();
    waits.sort_by(f64::total_cmp);
    let median = waits.get(waits.len() / 2).copied().unwrap_or_default();
    (counts, elapsed, seconds as f64, median)
}

/// A million tasks are pending when the workers start; measured from the second minute to the fourth.
async fn deep(workers: usize) -> (Counts, u64, f64) {
    let mut fleet = Fleet::new(1_000_000, 0);
    fleet.start(workers, &[task_type(0)], SHORT).await;
    fleet.pass(Duration::from_secs(30)).await;
    let (before, completed) = (fleet.counts(), fleet.completed());
    let time = Duration::from_mins(2);
    fleet.pass(time).await;
    let counts = fleet.counts().since(&before);
    let completed = fleet.completed() - completed;
    fleet.kill();
    (counts, completed, time.as_secs_f64())
}

/// A task loses its entry in a bucket with ten million finished tasks.
async fn history() -> (f64, Counts) {
    let mut fleet = Fleet::new(0, 10_000_000);
    fleet.start(1, &[task_type(0)], SHORT).await;
    // The sweeper has been at work for an hour.
    fleet.pass(Duration::from_hours(1)).await;
    let (submitter, _) = fleet.engine();
    let before = fleet.counts();
    fleet.submit_without_entry(&submitter).await;
    let took = fleet.until_completed(1, Duration::from_hours(30)).await;
    let counts = fleet.counts().since(&before);
    fleet.kill();
    (took.map_or(f64::NAN, |took| took.as_secs_f64()), counts)
}
