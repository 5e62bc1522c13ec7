//! Three workers run a thousand tasks, each once.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use qo_testkit::wait_until;

use super::LIMIT;
use super::cli::TestCli;

const TASKS: usize = 1_000;

fn three_workers_run_a_thousand_tasks_once_each(cli: &TestCli) {
    let mut submit = cli
        .command(["submit", "--type", "count", "--many", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = submit.stdin.take().unwrap();
    for number in 0..TASKS {
        writeln!(input, "{number}").unwrap();
    }
    drop(input);
    let printed = submit.wait_with_output().unwrap();
    assert!(printed.status.success());
    let ids = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(ids.lines().count(), TASKS, "one id per line");

    // The lease is long enough for a busy machine: no lease should expire here.
    let workers: Vec<_> = ["w-1", "w-2", "w-3"]
        .iter()
        .map(|id| {
            cli.worker(
                id,
                &[
                    "--lease",
                    "60s",
                    "--concurrency",
                    "8",
                    "--exec",
                    r#"count=echo "$QO_TASK_ID $QO_WORKER_ID" >> runs"#,
                ],
            )
        })
        .collect();
    let all_done = wait_until(LIMIT * 2, || cli.lines_of("runs").len() >= TASKS);
    assert!(
        all_done,
        "only {} of {TASKS} tasks ran in time",
        cli.lines_of("runs").len()
    );
    assert!(wait_until(LIMIT, || {
        cli.tasks().iter().all(|task| task["status"] == "completed")
    }));

    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    let mut by_worker: BTreeMap<String, usize> = BTreeMap::new();
    for line in cli.lines_of("runs") {
        let (id, worker) = line.split_once(' ').unwrap();
        *runs.entry(id.to_owned()).or_default() += 1;
        *by_worker.entry(worker.to_owned()).or_default() += 1;
    }
    assert_eq!(runs.len(), TASKS);
    assert!(runs.values().all(|count| *count == 1), "a task ran twice");
    assert_eq!(by_worker.len(), 3, "every worker ran tasks: {by_worker:?}");
    let tasks = cli.tasks();
    assert_eq!(tasks.len(), TASKS);
    assert!(tasks.iter().all(|task| task["attempt"] == 1));
    drop(workers);
}

on_both_stores!(three_workers_run_a_thousand_tasks_once_each);
