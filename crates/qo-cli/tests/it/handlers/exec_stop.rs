//! Commands that are stopped: none of their processes is left.

use std::path::Path;
use std::time::Duration;

use qo::{Status, Task};
use serde_json::json;

use super::{HandlerTest, error, eventually, shell};

/// A command that writes the process ids of itself, a child and a grandchild to a file, and waits forever.
fn process_tree(file: &Path, trap: &str) -> String {
    format!(
        "{trap} sh -c 'sleep 600 & echo $! >> {file}; echo $$ >> {file}; wait' & echo $$ >> {file}; echo ready >> {file}; wait; wait",
        file = file.display()
    )
}

/// Waits until the tree is complete. Returns its process ids.
async fn process_ids(file: &Path) -> Vec<u32> {
    let read = || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let processes: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (text.contains("ready") && processes.len() == 3).then_some(processes)
    };
    eventually("the process tree is complete", || read().is_some()).await;
    read().unwrap()
}

/// Whether a process runs. A zombie does not count.
fn is_alive(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

async fn all_gone(processes: &[u32]) {
    eventually("the whole process tree is gone", || {
        !processes.iter().any(|process| is_alive(*process))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_process_tree() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let test = HandlerTest::new(shell(&process_tree(&file, ""))).await;
    let id = test
        .submit_with(&json!(null), 0, Duration::from_secs(2))
        .await;
    let processes = process_ids(&file).await;
    let task = test.end(id).await;
    assert!(
        error(&task).contains("timed out after 2 s"),
        "{}",
        error(&task)
    );
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_whole_process_tree_even_if_it_ignores_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let test = HandlerTest::new(shell(&process_tree(&file, "trap '' TERM;"))).await;
    let id = test.submit(&json!(null)).await;
    let processes = process_ids(&file).await;
    test.queue.cancel(id, Some("enough")).await.unwrap();
    let task: Task = test.end(id).await;
    assert_eq!(task.status, Status::Cancelled, "{task:?}");
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_0_after_sigterm_is_not_a_success() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let test = HandlerTest::new(shell(&process_tree(&file, "trap 'exit 0' TERM;"))).await;
    let id = test.submit(&json!(null)).await;
    let processes = process_ids(&file).await;
    test.queue.cancel(id, None).await.unwrap();
    assert_eq!(test.end(id).await.status, Status::Cancelled);
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stop_ends_the_process_tree_and_releases_the_task() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let test = HandlerTest::new(shell(&process_tree(&file, ""))).await;
    let id = test.submit(&json!(null)).await;
    let processes = process_ids(&file).await;
    let report = test.worker.stop().await.unwrap();
    assert_eq!(report.released, 1, "{report:?}");
    let task = test.queue.get(id).await.unwrap();
    assert_eq!(task.status, Status::Pending, "{task:?}");
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_at_once_leaves_no_process_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("family");
    let test = HandlerTest::new(shell(&process_tree(&file, "trap '' TERM;"))).await;
    test.submit(&json!(null)).await;
    let processes = process_ids(&file).await;
    test.worker.stop_now().await.unwrap_err();
    all_gone(&processes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn background_processes_end_with_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left");
    let line = format!(
        "sleep 600 & echo $! > {file}; echo done",
        file = file.display()
    );
    let test = HandlerTest::new(shell(&line)).await;
    let task = test.run(&json!(null)).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(test.output(&task).await.unwrap(), r#""done""#);
    let process = std::fs::read_to_string(&file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    all_gone(&[process]).await;
}
