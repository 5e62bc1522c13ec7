//! Commands that are made to end: nothing of what they started is left.

use std::path::Path;
use std::time::Duration;

use qo::{Status, Task};
use serde_json::json;

use super::{Bench, error, eventually, shell};

/// A command that notes its own process, a child and a grandchild in a file, and waits for ever.
fn family(file: &Path, trap: &str) -> String {
    format!(
        "{trap} sh -c 'sleep 600 & echo $! >> {file}; echo $$ >> {file}; wait' & echo $$ >> {file}; echo ready >> {file}; wait; wait",
        file = file.display()
    )
}

/// The processes that a family noted, once all are there.
async fn noted(file: &Path) -> Vec<u32> {
    let read = || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let processes: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (text.contains("ready") && processes.len() == 3).then_some(processes)
    };
    eventually("the family is complete", || read().is_some()).await;
    read().unwrap()
}

/// Whether a process runs. One that has ended and was not waited for yet counts as gone.
fn is_alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

async fn all_gone(processes: &[u32]) {
    eventually("the whole family is gone", || {
        !processes.iter().any(|process| is_alive(*process))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_family() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let bench = Bench::new(shell(&family(&file, ""))).await;
    let id = bench
        .submit_with(&json!(null), 0, Duration::from_secs(2))
        .await;
    let processes = noted(&file).await;
    let task = bench.end(id).await;
    assert!(
        error(&task).contains("timed out after 2 s"),
        "{}",
        error(&task)
    );
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_whole_family_even_if_it_does_not_listen() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let bench = Bench::new(shell(&family(&file, "trap '' TERM;"))).await;
    let id = bench.submit(&json!(null)).await;
    let processes = noted(&file).await;
    bench.queue.cancel(id, Some("enough")).await.unwrap();
    let task: Task = bench.end(id).await;
    assert_eq!(task.status, Status::Cancelled, "{task:?}");
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ends_well_when_told_to_end_has_not_succeeded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let bench = Bench::new(shell(&family(&file, "trap 'exit 0' TERM;"))).await;
    let id = bench.submit(&json!(null)).await;
    let processes = noted(&file).await;
    bench.queue.cancel(id, None).await.unwrap();
    assert_eq!(bench.end(id).await.status, Status::Cancelled);
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_stop_ends_the_family_and_gives_the_task_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let bench = Bench::new(shell(&family(&file, ""))).await;
    let id = bench.submit(&json!(null)).await;
    let processes = noted(&file).await;
    let report = bench.worker.stop().await.unwrap();
    assert_eq!(report.released, 1, "{report:?}");
    let task = bench.queue.get(id).await.unwrap();
    assert_eq!(task.status, Status::Pending, "{task:?}");
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_at_once_leaves_no_process_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let bench = Bench::new(shell(&family(&file, "trap '' TERM;"))).await;
    bench.submit(&json!(null)).await;
    let processes = noted(&file).await;
    bench.worker.stop_now().await.unwrap_err();
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_running_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left");
    let line = format!(
        "sleep 600 & echo $! > {file}; echo done",
        file = file.display()
    );
    let bench = Bench::new(shell(&line)).await;
    let task = bench.run(&json!(null)).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(bench.output(&task).await.unwrap(), r#""done""#);
    let process = std::fs::read_to_string(&file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    all_gone(&[process]).await;
}
