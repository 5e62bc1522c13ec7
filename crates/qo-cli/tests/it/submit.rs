//! Adding tasks, and waiting for them.

use qo::{ClaimRequest, Failure, FailureKind, Json, Queue};
use serde_json::json;

use crate::place::Place;

/// Claims one task of a type as soon as there is one.
async fn claim(queue: &Queue, task_type: &str) -> qo::Task {
    let wish = ClaimRequest {
        wait_ms: 30_000,
        ..ClaimRequest::new("tester".parse().unwrap(), vec![task_type.parse().unwrap()])
    };
    let mut tasks = queue.claim(&wish).await.unwrap();
    tasks.pop().expect("a task")
}

#[test]
fn the_id_is_alone_on_standard_output_and_everything_said_is_stored() {
    let place = Place::new();
    let ran = place.qo(&[
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
    ran.assert(0);
    let id = ran.stdout.trim_end();
    assert!(id.parse::<qo::TaskId>().is_ok(), "{ran:?}");
    let task = place.qo(&["status", id, "--json"]).json("task");
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
    // The same key gives the same task.
    let again = place.qo(&[
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
fn the_input_comes_from_the_line_a_file_or_standard_input() {
    let place = Place::new();
    place.file("input.json", "{\"from\": \"file\"}\n");
    let from_file = place.qo(&["submit", "--type", "t", "--input", "@input.json", "--json"]);
    assert_eq!(from_file.json("submitted")["task"]["input"]["from"], "file");
    let from_stdin = place.qo_reading(&["submit", "--type", "t", "-i", "-", "--json"], "[1]");
    assert_eq!(from_stdin.json("submitted")["task"]["input"], json!([1]));
    let negative = place.qo(&["submit", "--type", "t", "--input", "-5", "--json"]);
    assert_eq!(negative.json("submitted")["task"]["input"], -5);
    let none = place.qo(&["submit", "--type", "t", "--json"]);
    assert!(none.json("submitted")["task"]["input"].is_null());
    for input in ["{bad", "@missing.json"] {
        let ran = place.qo(&["submit", "--type", "t", "--input", input, "--json"]);
        assert_eq!(ran.assert(2).error()["kind"], "bad_input");
    }
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let place = Place::new();
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
        place.qo(words).assert(2);
    }
    assert_eq!(place.qo(&["list", "--json"]).stdout, "");
}

#[test]
fn many_lines_are_submitted_and_bad_ones_named() {
    let place = Place::new();
    let ran = place.qo_reading(
        &["submit", "--type", "t", "--many", "--json"],
        "{\"n\": 1}\n\n{bad\n[2]\n",
    );
    let lines = ran.assert(2).lines("submitted-line");
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["line"], 1);
    assert_eq!(lines[1]["line"], 3);
    assert_eq!(lines[1]["error"]["kind"], "bad_input");
    assert_eq!(lines[2]["line"], 4);
    let stored = place.qo(&["list", "--json"]).lines("task");
    assert_eq!(stored.len(), 2);
}

#[test]
fn many_inputs_come_from_a_file_in_chunks() {
    let place = Place::new();
    let lines: Vec<String> = (0..1_201).map(|number| number.to_string()).collect();
    place.file("inputs.jsonl", &lines.join("\n"));
    let ran = place.qo(&["submit", "--type", "t", "--many", "inputs.jsonl"]);
    ran.assert(0);
    assert_eq!(ran.stdout.lines().count(), 1_201);
    assert!(
        ran.stderr.contains("1,201 tasks submitted"),
        "{}",
        ran.stderr
    );
    let stats = place.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"]["default"]["statuses"]["pending"], 1_201);
}

#[test]
fn full_lines_say_everything_and_flags_are_their_defaults() {
    let place = Place::new();
    let lines = [
        r#"{"type": "a", "input": {"x": 1}, "priority": 1, "delay": "5m", "tags": ["y"], "timeout": 7}"#,
        r#"{"input": 2, "id": "550e8400-e29b-41d4-a716-446655440000", "at": "2030-01-01T00:00:00Z"}"#,
        r#"{"type": "a", "inputs": 3}"#,
        r#"{"type": "a", "priority": 99}"#,
        r#"{"type": "a", "delay": "later"}"#,
        "7",
    ];
    let ran = place.qo_reading(
        &[
            "submit", "--many", "-", "--full", "--type", "b", "--queue", "q", "--tag", "z",
            "--json",
        ],
        &lines.join("\n"),
    );
    let told = ran.assert(2).lines("submitted-line");
    let failed: Vec<_> = told
        .iter()
        .filter(|line| line.get("error").is_some())
        .map(|line| line["line"].as_u64().unwrap())
        .collect();
    assert_eq!(failed, [3, 4, 5, 6]);
    let first = place
        .qo(&["status", told[0]["id"].as_str().unwrap(), "--json"])
        .json("task");
    assert_eq!(first["task_type"], "a");
    assert_eq!(first["queue"], "q");
    assert_eq!(first["priority"], 1);
    assert_eq!(first["tags"], json!(["z", "y"]));
    assert_eq!(first["timeout_seconds"], 7);
    let second = place
        .qo(&["status", "550e8400-e29b-41d4-a716-446655440000", "--json"])
        .json("task");
    assert_eq!(second["task_type"], "b");
    assert_eq!(second["available_at"], "2030-01-01T00:00:00.000Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_prints_the_output_and_its_exit_code_says_how_it_ended() {
    let place = Place::new();
    let queue = place.queue().await;
    let start = |task_type: &str| {
        let words = [
            "submit",
            "--type",
            task_type,
            "--wait",
            "--wait-timeout",
            "60",
        ];
        place.start(&words)
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
    let ran = good_command.end();
    ran.assert(0);
    assert_eq!(ran.stdout, "{\"sum\":  3}\n");
    let ran = bad_command.end();
    assert!(ran.assert(8).stderr.contains("no such address"), "{ran:?}");
    let (good_id, bad_id) = (good.id, bad.id);
    place.qo(&["wait", &good_id.to_string()]).assert(0);
    let ran = place.qo(&["wait", &bad_id.to_string(), "--json"]);
    assert_eq!(ran.assert(8).json("task")["status"], "failed");
    assert_eq!(ran.error()["kind"], "task_failed");
    let waiting = place.submit("nobody");
    let ran = place.qo(&["wait", &waiting, "--timeout", "100ms", "--json"]);
    assert_eq!(ran.assert(7).error()["kind"], "timeout");
}
