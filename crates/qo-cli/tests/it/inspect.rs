//! Commands that show tasks, queues and workers.

use std::io::{BufRead, BufReader, Read};

use qo::{ClaimRequest, Failure, FailureKind, WorkerInfo};
use rustix::process::Signal;

use crate::workspace::Workspace;

#[test]
fn a_list_has_aligned_columns_and_full_ids() {
    let workspace = Workspace::new();
    let (one, two) = (workspace.submit("short"), workspace.submit("a_longer_type"));
    let result = workspace.qo(&["list"]);
    let lines: Vec<&str> = result.assert(0).stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{result:#?}");
    let column = lines[0].find("STATUS").unwrap();
    assert!(
        lines[1].starts_with(&two) && lines[2].starts_with(&one),
        "the newest task comes first: {result:#?}"
    );
    for line in &lines[1..] {
        assert!(line[column..].starts_with("pending"), "{result:#?}");
    }
    // Output that is not a terminal has no colours.
    assert!(!result.stdout.contains('\u{1b}'));
    let painted = workspace.qo(&["list", "--color", "always"]);
    assert!(painted.stdout.contains("\u{1b}[33mpending"), "{painted:#?}");
}

#[test]
fn a_list_can_be_filtered_limited_and_continued() {
    let workspace = Workspace::new();
    for number in 0..30 {
        let task_type = if number % 3 == 0 { "three" } else { "other" };
        workspace.submit(task_type);
    }
    let list = |words: &[&str]| {
        let words: Vec<&str> = ["list", "--json"].iter().chain(words).copied().collect();
        workspace.qo(&words)
    };
    assert_eq!(list(&[]).lines("task").len(), 30);
    assert_eq!(list(&["--type", "three"]).lines("task").len(), 10);
    assert_eq!(list(&["--status", "failed,running"]).lines("task").len(), 0);
    assert_eq!(list(&["--since", "1h"]).lines("task").len(), 30);
    assert_eq!(list(&["--since", "2100-01-01"]).lines("task").len(), 0);
    assert_eq!(list(&["--queue", "other"]).lines("task").len(), 0);
    let shards: usize = "0123456789abcdef"
        .chars()
        .map(|digit| list(&["--shard", &digit.to_string()]).lines("task").len())
        .sum();
    assert_eq!(shards, 30);
    // Pages of four together contain every task once.
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut words = vec!["--type", "three", "--limit", "4"];
        if let Some(cursor) = &cursor {
            words.extend(["--cursor", cursor]);
        }
        let page = list(&words);
        let tasks = page.lines("task");
        assert!(tasks.len() <= 4);
        for task in tasks {
            assert!(seen.insert(task["id"].as_str().unwrap().to_owned()));
        }
        let Some(note) = page.stderr.lines().last() else {
            break;
        };
        let note: serde_json::Value = serde_json::from_str(note).unwrap();
        cursor = Some(note["next_cursor"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen.len(), 10);
    assert_eq!(list(&["--all"]).lines("task").len(), 30);
    list(&["--status", "done"]).assert(2);
    list(&["--limit", "0"]).assert(2);
}

#[tokio::test]
async fn status_shows_the_task_without_control_characters() {
    let workspace = Workspace::new();
    let id = workspace.submit("mail");
    let output = workspace.qo(&["status", &id]);
    for part in [
        "pending",
        "type       mail",
        "submitted",
        "due",
        "{\"n\": 1}",
    ] {
        assert!(output.assert(0).stdout.contains(part), "{output:#?}");
    }
    let queue = workspace.queue().await;
    let request = ClaimRequest::new("worker-1".parse().unwrap(), vec!["mail".parse().unwrap()]);
    let task = queue.claim(&request).await.unwrap().pop().unwrap();
    let output = workspace.qo(&["status", &id]);
    for part in ["running", "worker     worker-1", "lease", "left"] {
        assert!(output.assert(0).stdout.contains(part), "{output:#?}");
    }
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "bad \u{1b}[2J thing".into(),
    };
    let lease = task.lease_id.unwrap();
    queue.fail(task.id, lease, failure).await.unwrap();
    for words in [&["status", id.as_str()][..], &["list"], &["history", &id]] {
        let result = workspace.qo(words);
        assert!(
            result.assert(0).stdout.contains("bad \u{fffd}[2J thing"),
            "{result:#?}"
        );
        assert!(!result.stdout.contains('\u{1b}'), "{result:#?}");
    }
    let events = workspace.qo(&["history", &id, "--json"]).lines("event");
    let path: Vec<&str> = events
        .iter()
        .map(|event| event["to"].as_str().unwrap())
        .collect();
    assert_eq!(path, ["pending", "running", "failed"]);
    queue.close().await;
}

#[test]
fn a_missing_task_is_not_found() {
    let workspace = Workspace::new();
    let id = "550e8400-e29b-41d4-a716-446655440000";
    for command in [
        "status",
        "history",
        "wait",
        "replay",
        "run-now",
        "cancel",
        "archive",
        "unarchive",
        "purge",
    ] {
        let result = workspace.qo(&[command, id]);
        assert!(result.assert(3).stderr.contains(id), "{result:#?}");
    }
    let result = workspace.qo(&["status", id, "--json"]);
    let error = result.assert(3).error();
    assert_eq!(error["kind"], "not_found");
    // The hint names the store.
    assert!(
        error["hint"].as_str().unwrap().contains("queue.db"),
        "{error}"
    );
    workspace.qo(&["status", "7"]).assert(2);
}

#[test]
fn versions_are_shown_if_the_store_is_versioned() {
    let workspace = Workspace::new();
    let early = workspace.submit("t");
    assert_eq!(
        workspace
            .qo(&["history", &early, "--versions", "--json"])
            .assert(9)
            .error()["kind"],
        "unsupported"
    );
    // Versioning is not switched on in a bucket in use.
    let workspace = Workspace::new();
    workspace.qo(&["init", "--probe-budget", "1s"]).assert(0);
    let id = workspace.submit("t");
    workspace.qo(&["cancel", &id]).assert(0);
    let versions = workspace
        .qo(&["history", &id, "--versions", "--json"])
        .lines("version");
    assert_eq!(versions.len(), 2);
    let steps = workspace
        .qo(&["history", &id, "--diff", "--json"])
        .lines("version");
    let changed: Vec<&str> = steps[1]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["field"].as_str().unwrap())
        .collect();
    assert!(changed.contains(&"status"), "{changed:?}");
    let shown = workspace.qo(&["history", &id, "--diff"]);
    assert!(
        shown
            .assert(0)
            .stdout
            .contains("status: \"pending\" → \"cancelled\""),
        "{shown:#?}"
    );
    assert!(
        workspace
            .qo(&["history", &id, "--versions"])
            .stdout
            .contains("REVISION")
    );
}

#[tokio::test]
async fn health_of_workers_follows_from_their_heartbeats() {
    let workspace = Workspace::new();
    assert_eq!(
        workspace.qo(&["workers", "--json"]).lines("worker").len(),
        0
    );
    let queue = workspace.queue().await;
    let now = queue.now();
    for (name, silent_seconds) in [("lively", 5), ("slow", 120), ("gone", 3_600)] {
        let mut worker = WorkerInfo::new(name.parse().unwrap(), now.minus_millis(7_200_000));
        worker.last_heartbeat = now.minus_millis(silent_seconds * 1_000);
        worker.tasks_completed = 12;
        worker.cpu_percent = Some(150);
        worker.memory_bytes = Some(48 * 1_048_576);
        queue.heartbeat(&worker).await.unwrap();
    }
    let workers = workspace.qo(&["workers", "--json"]).lines("worker");
    let states: Vec<_> = workers
        .iter()
        .map(|worker| {
            (
                worker["worker_id"].as_str().unwrap(),
                worker["state"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        states,
        [("lively", "active"), ("slow", "stale"), ("gone", "dead")]
    );
    let shown = workspace.qo(&["workers", "--threshold", "1d"]);
    let shown = &shown.assert(0).stdout;
    assert!(!shown.contains("stale"), "{shown}");
    assert!(
        shown.contains("150 %") && shown.contains("48 MiB"),
        "{shown}"
    );
    queue.close().await;
}

#[test]
fn stats_count_by_queue_and_show_paused_queues() {
    let workspace = Workspace::new();
    let stats = workspace.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"], serde_json::json!({}));
    let of_type = workspace.submit("a");
    let mail = workspace.qo(&["submit", "--type", "b", "--queue", "mail"]);
    let of_queue = mail.assert(0).stdout.trim().to_owned();
    let why = ["pause", "mail", "--reason", "the provider is down"];
    workspace.qo_with(&[("QO_ACTOR", "ada")], &why).assert(0);
    let paused = workspace.qo(&["pause", "--type", "a", "--json"]);
    assert_eq!(
        paused.assert(0).stdout,
        "{\"paused\":true,\"type\":\"a\"}\n"
    );
    // One of both must be named.
    workspace.qo(&["pause"]).assert(2);
    workspace.qo(&["pause", "mail", "--type", "a"]).assert(2);
    let stats = workspace.qo(&["stats", "--json"]).json("stats");
    let pause = &stats["pauses"]["queues"]["mail"];
    assert_eq!(
        (&pause["by"], &pause["reason"]),
        (&"ada".into(), &"the provider is down".into())
    );
    assert!(pause["since"].is_string() && stats["pauses"]["types"]["a"]["since"].is_string());
    // The tasks say what they wait for.
    for (id, reason) in [
        (
            of_queue.as_str(),
            "waits      queue mail is paused by ada: the provider is down",
        ),
        (&of_type, "waits      type a is paused"),
    ] {
        let status = workspace.qo(&["status", id]);
        assert!(status.assert(0).stdout.contains(reason), "{status:?}");
    }
    let idle = ["worker", "--exec", "a=true", "--exit-when-idle", "1s"];
    workspace.qo(&idle).assert(0);
    let stats = workspace.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"]["default"]["statuses"]["pending"], 1);
    assert_eq!(stats["queues"]["mail"]["types"]["b"], 1);
    assert_eq!(stats["queues"]["mail"]["paused"], true);
    let shown = workspace.qo(&["stats", "--types"]);
    assert!(
        ["paused", "TYPE", "ada", "the provider is down"]
            .iter()
            .all(|part| shown.stdout.contains(part)),
        "{shown:#?}"
    );
    let resumed = workspace.qo(&["resume", "mail", "--json"]);
    assert_eq!(
        resumed.assert(0).stdout,
        "{\"paused\":false,\"queue\":\"mail\"}\n"
    );
    workspace.qo(&["resume", "--type", "a"]).assert(0);
    let stats = workspace.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"]["mail"]["paused"], false);
    assert_eq!(
        stats["pauses"],
        serde_json::json!({"queues": {}, "types": {}})
    );
}

#[test]
fn a_watch_shows_changes_and_stops_cleanly() {
    let workspace = Workspace::new();
    workspace.submit("first");
    let mut watch = workspace.start(&["list", "--watch", "0.2", "--json"]);
    let mut lines = BufReader::new(watch.stdout()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("\"first\""), "{first}");
    workspace.submit("second");
    // Later outputs list both tasks. Reading blocks until there is a line, or until the command ends.
    assert!(lines.any(|line| line.unwrap().contains("\"second\"")));
    watch.signal(Signal::INT);
    watch.end().assert(0);
}

#[test]
fn a_closed_output_ends_a_list_quietly() {
    let workspace = Workspace::new();
    let inputs: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    workspace.file("inputs", &inputs.join("\n"));
    workspace
        .qo(&["submit", "--type", "t", "--many", "inputs"])
        .assert(0);
    let mut list = workspace.start(&["list", "--all", "--json"]);
    let mut first = [0; 10];
    list.stdout().read_exact(&mut first).unwrap();
    let result = list.end();
    assert_eq!((result.code, result.stderr.as_str()), (0, ""));
}

#[test]
fn verbose_logs_requests_with_latency_and_rust_log_takes_precedence() {
    let workspace = Workspace::new();
    let id = workspace.submit("t");
    let result = workspace.qo(&["-v", "status", &id]);
    let line = result
        .stderr
        .lines()
        .find(|line| line.contains(&id))
        .unwrap();
    assert!(
        line.contains("GET") && line.contains(" ok ") && line.ends_with(" ms"),
        "{result:#?}"
    );
    let silent = workspace
        .command(&["-v", "status", &id])
        .env("RUST_LOG", "off")
        .output()
        .unwrap();
    assert!(silent.stderr.is_empty());
    let loud = workspace
        .command(&["status", &id])
        .env("RUST_LOG", "qo_store=debug")
        .output()
        .unwrap();
    assert!(String::from_utf8(loud.stderr).unwrap().contains(&id));
}

#[test]
fn lists_show_the_newest_first_unless_told_otherwise() {
    let workspace = Workspace::new();
    let mut submitted: Vec<String> = Vec::new();
    for _ in 0..6 {
        submitted.insert(0, workspace.submit("t"));
    }
    let ids = |words: &[&str]| -> Vec<String> {
        let words: Vec<&str> = ["list", "--json"].iter().chain(words).copied().collect();
        let tasks = workspace.qo(&words).lines("task");
        let ids = tasks.iter().map(|task| task["id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    };
    assert_eq!(ids(&[]), submitted);
    assert_eq!(ids(&["--limit", "2"]), submitted[..2]);
    assert_eq!(ids(&["--all"]), submitted);
    let mut sorted = submitted.clone();
    sorted.sort();
    assert_eq!(ids(&["--sort", "id"]), sorted);
    // A cursor belongs to its order.
    let page = workspace.qo(&["list", "--json", "--sort", "id", "--limit", "2"]);
    let note: serde_json::Value =
        serde_json::from_str(page.stderr.lines().last().unwrap()).unwrap();
    let cursor = note["next_cursor"].as_str().unwrap();
    assert_eq!(ids(&["--sort", "id", "--cursor", cursor]), sorted[2..]);
    let refused = workspace.qo(&["list", "--cursor", cursor]);
    assert!(refused.assert(2).stderr.contains("cursor"), "{refused:#?}");
    workspace.qo(&["list", "--sort", "oldest"]).assert(2);
}

#[tokio::test]
async fn errors_are_grouped_with_counts_and_types() {
    let workspace = Workspace::new();
    let empty = workspace.qo(&["errors"]);
    assert_eq!(empty.assert(0).stdout, "");
    let queue = workspace.queue().await;
    for number in 0..5 {
        let task_type = if number == 4 { "bill" } else { "mail" };
        workspace.submit(task_type);
        let mut request = ClaimRequest::new("w".parse().unwrap(), vec![task_type.parse().unwrap()]);
        // Another process has submitted it.
        request.wait_ms = 20_000;
        let task = queue.claim(&request).await.unwrap().pop().unwrap();
        let failure = Failure {
            kind: FailureKind::Permanent,
            error: match number {
                3 => "disk full".into(),
                _ => format!("no route to host 10.0.0.{number}\nsecond line").into(),
            },
        };
        let lease = task.lease_id.unwrap();
        queue.fail(task.id, lease, failure).await.unwrap();
    }
    let groups = workspace.qo(&["errors", "--json"]).lines("error-group");
    assert_eq!(groups.len(), 2, "{groups:#?}");
    assert_eq!(groups[0]["pattern"], "no route to host ‹n›");
    assert_eq!(groups[0]["count"], 4);
    assert_eq!(groups[0]["types"]["mail"], 3);
    assert_eq!(groups[0]["ids"].as_array().unwrap().len(), 3);
    assert_eq!(groups[1]["example"], "disk full");
    let found = workspace
        .qo(&["list", "--json", "--text", "DISK full"])
        .lines("task");
    assert_eq!(found.len(), 1, "{found:#?}");
    // A search has no index, so the command says what it cost.
    let searched = workspace.qo(&["list", "--text", "disk full"]);
    let note = &searched.assert(0).stderr;
    assert!(note.contains("The search read 5 tasks."), "{searched:#?}");
    let listed = workspace.qo(&["list"]);
    assert!(!listed.assert(0).stderr.contains("read"), "{listed:#?}");
    workspace.qo(&["list", "--text", ""]).assert(2);
    let replayed = workspace.qo(&["replay", "--text", "disk", "--dry-run"]);
    assert!(
        replayed.assert(0).stdout.contains("1 task matches"),
        "{replayed:#?}"
    );
    let table = workspace.qo(&["errors", "--type", "bill"]);
    let lines: Vec<&str> = table.assert(0).stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{table:#?}");
    assert!(lines[1].contains("no route to host ‹n›") && lines[1].contains("bill 1"));
    let cut = workspace.qo(&["errors", "--limit", "2"]);
    assert!(cut.assert(0).stderr.contains("newest 2 tasks"), "{cut:#?}");
}

#[tokio::test]
async fn top_shows_queues_rates_workers_and_failures() {
    let workspace = Workspace::new();
    let queue = workspace.queue().await;
    workspace.submit("mail");
    workspace.submit("mail");
    let now = queue.now();
    let worker = WorkerInfo::new("worker-1".parse().unwrap(), now);
    queue.heartbeat(&worker).await.unwrap();
    let request = ClaimRequest::new("worker-1".parse().unwrap(), vec!["mail".parse().unwrap()]);
    let task = queue.claim(&request).await.unwrap().pop().unwrap();
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "no route".into(),
    };
    let lease = task.lease_id.unwrap();
    queue.fail(task.id, lease, failure).await.unwrap();
    let view = workspace
        .qo(&["top", "--once", "--interval", "0.2", "--json"])
        .json("top");
    assert_eq!(view["queues"][0]["queue"], "default");
    assert_eq!(view["queues"][0]["pending"], 1);
    assert_eq!(view["queues"][0]["failed"], 1);
    assert_eq!(view["workers"]["live"], 1);
    assert_eq!(view["failures"][0]["error"], "no route");
    let table = workspace.qo(&["top", "--once", "--interval", "0.2"]);
    for part in ["1 pending", "worker-1", "no route", "DONE/MIN"] {
        assert!(table.assert(0).stdout.contains(part), "{part}: {table:#?}");
    }
    let other = workspace.qo(&[
        "top",
        "--once",
        "--interval",
        "0.2",
        "--queue",
        "x",
        "--json",
    ]);
    assert_eq!(other.json("top")["queues"].as_array().unwrap().len(), 0);
}

#[test]
fn logs_show_what_attempts_printed() {
    let workspace = Workspace::new();
    let id = workspace.submit("chatty");
    let none = workspace.qo(&["logs", &id]);
    assert!(none.assert(0).stderr.contains("No logs"), "{none:#?}");
    workspace.qo(&["logs", &id, "--attempt", "1"]).assert(3);
    let exec = "chatty=echo connecting >&2; printf '\\033[31mred\\033[0m\\n' >&2";
    workspace
        .qo(&["worker", "--exec", exec, "--max-tasks", "1"])
        .assert(0);
    let shown = workspace.qo(&["logs", &id]);
    assert!(shown.assert(0).stdout.contains("attempt 1"), "{shown:#?}");
    assert!(shown.stdout.ends_with("connecting\nred\n"), "{shown:#?}");
    let log = workspace.qo(&["logs", &id, "--attempt", "1", "--json"]);
    let log = log.json("attempt-log");
    assert_eq!(
        (&log["attempt"], &log["text"]),
        (&1.into(), &"connecting\nred\n".into())
    );
}

#[test]
fn a_list_is_sorted_by_a_column() {
    let workspace = Workspace::new();
    for (task_type, delay) in [("b", "3m"), ("c", "1m"), ("a", "2m")] {
        let words = ["submit", "--type", task_type, "--delay", delay];
        workspace.qo(&words).assert(0);
    }
    let types = |words: &[&str]| {
        let listed = workspace.qo(&[&["list", "--json"], words].concat());
        let tasks = listed.assert(0).lines("task");
        let of = |task: &serde_json::Value| task["task_type"].as_str().unwrap().to_owned();
        tasks.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(types(&["--sort", "type"]), ["a", "b", "c"]);
    assert_eq!(types(&["--sort", "due"]), ["c", "a", "b"]);
    assert_eq!(
        types(&["--sort", "due", "--reverse", "--limit", "1"]),
        ["b"]
    );
    for bad in [
        &["--reverse"][..],
        &["--sort", "id", "--reverse"],
        &["--sort", "due", "--all"],
        &["--sort", "due", "--cursor", "x"],
        &["--sort", "colour"],
    ] {
        assert_eq!(workspace.qo(&[&["list"], bad].concat()).code, 2, "{bad:?}");
    }
}
