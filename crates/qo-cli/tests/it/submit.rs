//! `qo submit` and `qo wait`.

use qo::{ClaimRequest, Failure, FailureKind, Json, Queue};
use serde_json::json;

use crate::workspace::Workspace;

/// Claims one task of a type, waiting for it if necessary.
async fn claim(queue: &Queue, task_type: &str) -> qo::Task {
    let request = ClaimRequest {
        wait_ms: 30_000,
        ..ClaimRequest::new("tester".parse().unwrap(), vec![task_type.parse().unwrap()])
    };
    let mut tasks = queue.claim(&request).await.unwrap();
    tasks.pop().expect("a task")
}

#[test]
fn submit_prints_the_id_and_stores_all_fields() {
    let workspace = Workspace::new();
    let result = workspace.qo(&[
        "submit",
        "--type",
        "mail",
        "--input",
        "{\"to\": [1, 2]}",
        "--queue",
        "fast",
        "--priority",
        "1",
        "--delay",
        "1h30m",
        "--expires-in",
        "1d",
        "--timeout",
        "90",
        "--retries",
        "7",
        "--tag",
        "a",
        "--tag",
        "b",
        "--retry-initial",
        "5s",
        "--retry-max",
        "10m",
        "--retry-multiplier",
        "3",
        "--retry-jitter",
        "0.5",
        "--idempotency-key",
        "k",
        "--idempotency-scope",
        "global",
        "--idempotency-window",
        "2h",
    ]);
    result.assert(0);
    let id = result.stdout.trim_end();
    assert!(id.parse::<qo::TaskId>().is_ok(), "{result:?}");
    let task = workspace.qo(&["status", id, "--json"]).json("task");
    assert_eq!(task["task_type"], "mail");
    assert_eq!(task["queue"], "fast");
    assert_eq!(task["priority"], 1);
    assert_eq!(task["timeout_seconds"], 90);
    assert_eq!(task["max_retries"], 7);
    assert_eq!(task["tags"], json!(["a", "b"]));
    assert_eq!(task["retry_policy"]["initial_interval_ms"], 5_000);
    assert_eq!(task["retry_policy"]["max_interval_ms"], 600_000);
    assert_eq!(task["idempotency_scope"], "global");
    assert_eq!(task["input"], json!({ "to": [1, 2] }));
    let millis = |field: &str| {
        let time: qo::Timestamp = task[field].as_str().unwrap().parse().unwrap();
        time.as_millis()
    };
    assert_eq!(millis("available_at") - millis("created_at"), 5_400_000);
    assert_eq!(millis("expires_at") - millis("created_at"), 86_400_000);
    assert_eq!(
        millis("idempotency_until") - millis("created_at"),
        7_200_000
    );
    // The same key returns the same task.
    let again = workspace.qo(&[
        "submit",
        "--type",
        "mail",
        "--idempotency-key",
        "k",
        "--idempotency-scope",
        "global",
        "--json",
    ]);
    let again = again.json("submitted");
    assert_eq!(again["id"], id);
    assert_eq!(again["duplicate"], true);
}

#[test]
fn the_input_comes_from_the_command_line_a_file_or_standard_input() {
    let workspace = Workspace::new();
    workspace.file("input.json", "{\"from\": \"file\"}\n");
    let from_file = workspace.qo(&["submit", "--type", "t", "--input", "@input.json", "--json"]);
    assert_eq!(from_file.json("submitted")["task"]["input"]["from"], "file");
    let from_stdin = workspace.qo_reading(&["submit", "--type", "t", "-i", "-", "--json"], "[1]");
    assert_eq!(from_stdin.json("submitted")["task"]["input"], json!([1]));
    let negative = workspace.qo(&["submit", "--type", "t", "--input", "-5", "--json"]);
    assert_eq!(negative.json("submitted")["task"]["input"], -5);
    let none = workspace.qo(&["submit", "--type", "t", "--json"]);
    assert!(none.json("submitted")["task"]["input"].is_null());
    for input in ["{bad", "@missing.json"] {
        let result = workspace.qo(&["submit", "--type", "t", "--input", input, "--json"]);
        assert_eq!(result.assert(2).error()["kind"], "bad_input");
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    let workspace = Workspace::new();
    for words in [
        &["submit"][..],
        &["submit", "--type", "has space"],
        &["submit", "--type", "t", "--priority", "10"],
        &["submit", "--type", "t", "--delay", "soon"],
        &[
            "submit",
            "--type",
            "t",
            "--delay",
            "1s",
            "--at",
            "2030-01-01",
        ],
        &["submit", "--type", "t", "--idempotency-window", "1h"],
        &["submit", "--type", "t", "--retries", "99999"],
        &["submit", "--type", "t", "--retry-multiplier", "0.5"],
        &["submit", "--type", "t", "--id", "7"],
        &["submit", "--type", "t", "--many", "--input", "1"],
    ] {
        workspace.qo(words).assert(2);
    }
    assert_eq!(workspace.qo(&["list", "--json"]).stdout, "");
}

#[test]
fn many_lines_are_submitted_and_bad_ones_are_reported() {
    let workspace = Workspace::new();
    let result = workspace.qo_reading(
        &["submit", "--type", "t", "--many", "--json"],
        "{\"n\": 1}\n\n{bad\n[2]\n",
    );
    let lines = result.assert(2).lines("submitted-line");
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["line"], 1);
    assert_eq!(lines[1]["line"], 3);
    assert_eq!(lines[1]["error"]["kind"], "bad_input");
    assert_eq!(lines[2]["line"], 4);
    let stored = workspace.qo(&["list", "--json"]).lines("task");
    assert_eq!(stored.len(), 2);
}

#[test]
fn many_inputs_come_from_a_file_in_batches() {
    let workspace = Workspace::new();
    let lines: Vec<String> = (0..1_201).map(|number| number.to_string()).collect();
    workspace.file("inputs.jsonl", &lines.join("\n"));
    let result = workspace.qo(&["submit", "--type", "t", "--many", "inputs.jsonl"]);
    result.assert(0);
    assert_eq!(result.stdout.lines().count(), 1_201);
    assert!(
        result.stderr.contains("1,201 tasks submitted"),
        "{}",
        result.stderr
    );
    let stats = workspace.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"]["default"]["statuses"]["pending"], 1_201);
}

#[test]
fn full_lines_set_all_fields_and_flags_are_their_defaults() {
    let workspace = Workspace::new();
    let lines = [
        r#"{"type": "a", "input": {"x": 1}, "priority": 1, "delay": "5m", "tags": ["y"], "timeout": 7}"#,
        r#"{"input": 2, "id": "550e8400-e29b-41d4-a716-446655440000", "at": "2030-01-01T00:00:00Z"}"#,
        r#"{"type": "a", "inputs": 3}"#,
        r#"{"type": "a", "priority": 99}"#,
        r#"{"type": "a", "delay": "later"}"#,
        "7",
    ];
    let result = workspace.qo_reading(
        &[
            "submit", "--many", "-", "--full", "--type", "b", "--queue", "q", "--tag", "z",
            "--json",
        ],
        &lines.join("\n"),
    );
    let lines_printed = result.assert(2).lines("submitted-line");
    let failed: Vec<_> = lines_printed
        .iter()
        .filter(|line| line.get("error").is_some())
        .map(|line| line["line"].as_u64().unwrap())
        .collect();
    assert_eq!(failed, [3, 4, 5, 6]);
    let first = workspace
        .qo(&["status", lines_printed[0]["id"].as_str().unwrap(), "--json"])
        .json("task");
    assert_eq!(first["task_type"], "a");
    assert_eq!(first["queue"], "q");
    assert_eq!(first["priority"], 1);
    assert_eq!(first["tags"], json!(["z", "y"]));
    assert_eq!(first["timeout_seconds"], 7);
    let second = workspace
        .qo(&["status", "550e8400-e29b-41d4-a716-446655440000", "--json"])
        .json("task");
    assert_eq!(second["task_type"], "b");
    assert_eq!(second["available_at"], "2030-01-01T00:00:00.000Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_prints_the_output_and_its_exit_code_gives_the_result() {
    let workspace = Workspace::new();
    let queue = workspace.queue().await;
    let start = |task_type: &str| {
        let words = [
            "submit",
            "--type",
            task_type,
            "--wait",
            "--wait-timeout",
            "60",
        ];
        workspace.start(&words)
    };
    let (good_command, bad_command) = (start("good"), start("bad"));
    let good = claim(&queue, "good").await;
    let output = Some(Json::parse("{\"sum\":  3}").unwrap());
    queue
        .complete(good.id, good.lease_id.unwrap(), output)
        .await
        .unwrap();
    let bad = claim(&queue, "bad").await;
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "no such address".into(),
    };
    queue
        .fail(bad.id, bad.lease_id.unwrap(), failure)
        .await
        .unwrap();
    let result = good_command.end();
    result.assert(0);
    assert_eq!(result.stdout, "{\"sum\":  3}\n");
    let result = bad_command.end();
    assert!(
        result.assert(8).stderr.contains("no such address"),
        "{result:?}"
    );
    let (good_id, bad_id) = (good.id, bad.id);
    workspace.qo(&["wait", &good_id.to_string()]).assert(0);
    let result = workspace.qo(&["wait", &bad_id.to_string(), "--json"]);
    assert_eq!(result.assert(8).json("task")["status"], "failed");
    assert_eq!(result.error()["kind"], "task_failed");
    let waiting = workspace.submit("nobody");
    let result = workspace.qo(&["wait", &waiting, "--timeout", "100ms", "--json"]);
    assert_eq!(result.assert(7).error()["kind"], "timeout");
}
