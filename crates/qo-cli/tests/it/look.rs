//! Looking at tasks, queues and workers.

use std::io::{BufRead, BufReader, Read};

use qo::{ClaimRequest, Failure, FailureKind, WorkerInfo};
use rustix::process::Signal;

use crate::place::Place;

#[test]
fn a_list_has_aligned_columns_and_full_ids() {
    let place = Place::new();
    let (one, two) = (place.submit("short"), place.submit("a_longer_type"));
    let ran = place.qo(&["list"]);
    let lines: Vec<&str> = ran.assert(0).stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:#?}");
    let column = lines[0].find("STATUS").unwrap();
    assert!(
        lines[1].starts_with(&one) && lines[2].starts_with(&two),
        "{ran:#?}"
    );
    for line in &lines[1..] {
        assert!(line[column..].starts_with("pending"), "{ran:#?}");
    }
    // Nothing that goes to a file has colours.
    assert!(!ran.stdout.contains('\u{1b}'));
    let painted = place.qo(&["list", "--color", "always"]);
    assert!(painted.stdout.contains("\u{1b}[33mpending"), "{painted:#?}");
}

#[test]
fn a_list_can_be_filtered_and_its_limit_counts_results() {
    let place = Place::new();
    for number in 0..30 {
        let task_type = if number % 3 == 0 { "three" } else { "other" };
        place.submit(task_type);
    }
    let list = |words: &[&str]| {
        let words: Vec<&str> = ["list", "--json"].iter().chain(words).copied().collect();
        place.qo(&words)
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
    // Pages of four, one after the other, give every task once.
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
async fn a_card_shows_the_state_and_nothing_that_a_terminal_obeys() {
    let place = Place::new();
    let id = place.submit("mail");
    let card = place.qo(&["status", &id]);
    for part in [
        "pending",
        "type       mail",
        "submitted",
        "due",
        "{\"n\": 1}",
    ] {
        assert!(card.assert(0).stdout.contains(part), "{card:#?}");
    }
    let queue = place.queue().await;
    let wish = ClaimRequest::new("worker-1".parse().unwrap(), vec!["mail".parse().unwrap()]);
    let task = queue.claim(&wish).await.unwrap().pop().unwrap();
    let card = place.qo(&["status", &id]);
    for part in ["running", "worker     worker-1", "lease", "left"] {
        assert!(card.assert(0).stdout.contains(part), "{card:#?}");
    }
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "bad \u{1b}[2J thing".into(),
    };
    let lease = task.lease_id.unwrap();
    queue.fail(task.id, lease, failure).await.unwrap();
    for words in [&["status", id.as_str()][..], &["list"], &["history", &id]] {
        let ran = place.qo(words);
        assert!(
            ran.assert(0).stdout.contains("bad \u{fffd}[2J thing"),
            "{ran:#?}"
        );
        assert!(!ran.stdout.contains('\u{1b}'), "{ran:#?}");
    }
    let events = place.qo(&["history", &id, "--json"]).lines("event");
    let path: Vec<&str> = events
        .iter()
        .map(|event| event["to"].as_str().unwrap())
        .collect();
    assert_eq!(path, ["pending", "running", "failed"]);
    queue.close().await;
}

#[test]
fn what_is_not_there_is_not_found() {
    let place = Place::new();
    let id = "550e8400-e29b-41d4-a716-446655440000";
    for command in [
        "status",
        "history",
        "wait",
        "replay",
        "cancel",
        "archive",
        "unarchive",
        "purge",
    ] {
        let ran = place.qo(&[command, id]);
        assert!(ran.assert(3).stderr.contains(id), "{ran:#?}");
    }
    let ran = place.qo(&["status", id, "--json"]);
    let error = ran.assert(3).error();
    assert_eq!(error["kind"], "not_found");
    // The store that was searched is named.
    assert!(
        error["hint"].as_str().unwrap().contains("queue.db"),
        "{error}"
    );
    place.qo(&["status", "7"]).assert(2);
}

#[test]
fn versions_are_shown_where_the_store_keeps_them() {
    let place = Place::new();
    let early = place.submit("t");
    assert_eq!(
        place
            .qo(&["history", &early, "--versions", "--json"])
            .assert(9)
            .error()["kind"],
        "unsupported"
    );
    place.qo(&["init", "--probe-budget", "1s"]).assert(0);
    let id = place.submit("t");
    place.qo(&["cancel", &id]).assert(0);
    let versions = place
        .qo(&["history", &id, "--versions", "--json"])
        .lines("version");
    assert_eq!(versions.len(), 2);
    let steps = place
        .qo(&["history", &id, "--diff", "--json"])
        .lines("version");
    let changed: Vec<&str> = steps[1]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["field"].as_str().unwrap())
        .collect();
    assert!(changed.contains(&"status"), "{changed:?}");
    let shown = place.qo(&["history", &id, "--diff"]);
    assert!(
        shown
            .assert(0)
            .stdout
            .contains("status: \"pending\" → \"cancelled\""),
        "{shown:#?}"
    );
    assert!(
        place
            .qo(&["history", &id, "--versions"])
            .stdout
            .contains("REVISION")
    );
}

#[tokio::test]
async fn workers_are_judged_by_when_they_were_heard_of() {
    let place = Place::new();
    assert_eq!(place.qo(&["workers", "--json"]).lines("worker").len(), 0);
    let queue = place.queue().await;
    let now = queue.now();
    for (name, silent_seconds) in [("lively", 5), ("slow", 120), ("gone", 3_600)] {
        let mut worker = WorkerInfo::new(name.parse().unwrap(), now.minus_millis(7_200_000));
        worker.last_heartbeat = now.minus_millis(silent_seconds * 1_000);
        worker.tasks_completed = 12;
        queue.heartbeat(&worker).await.unwrap();
    }
    let workers = place.qo(&["workers", "--json"]).lines("worker");
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
    let shown = place.qo(&["workers", "--threshold", "1d"]);
    assert!(!shown.assert(0).stdout.contains("stale"), "{shown:#?}");
    queue.close().await;
}

#[test]
fn stats_count_by_queue_and_show_what_is_paused() {
    let place = Place::new();
    let stats = place.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"], serde_json::json!({}));
    place.submit("a");
    place
        .qo(&["submit", "--type", "b", "--queue", "mail"])
        .assert(0);
    place.qo(&["pause", "mail"]).assert(0);
    let stats = place.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"]["default"]["statuses"]["pending"], 1);
    assert_eq!(stats["queues"]["mail"]["types"]["b"], 1);
    assert_eq!(stats["queues"]["mail"]["paused"], true);
    let shown = place.qo(&["stats", "--types"]);
    assert!(
        shown.stdout.contains("paused") && shown.stdout.contains("TYPE"),
        "{shown:#?}"
    );
    let resumed = place.qo(&["resume", "mail", "--json"]);
    assert_eq!(
        resumed.assert(0).stdout,
        "{\"paused\":false,\"queue\":\"mail\"}\n"
    );
    let stats = place.qo(&["stats", "--json"]).json("stats");
    assert_eq!(stats["queues"]["mail"]["paused"], false);
}

#[test]
fn a_watch_shows_what_changes_and_ends_cleanly() {
    let place = Place::new();
    place.submit("first");
    let mut watch = place.start(&["list", "--watch", "0.2", "--json"]);
    let mut lines = BufReader::new(watch.stdout()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("\"first\""), "{first}");
    place.submit("second");
    // Each look lists both from now on; reading blocks until there is a line, and the command's end would end it.
    assert!(lines.any(|line| line.unwrap().contains("\"second\"")));
    watch.signal(Signal::INT);
    watch.end().assert(0);
}

#[test]
fn a_reader_that_goes_away_ends_a_list_quietly() {
    let place = Place::new();
    let inputs: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    place.file("inputs", &inputs.join("\n"));
    place
        .qo(&["submit", "--type", "t", "--many", "inputs"])
        .assert(0);
    let mut list = place.start(&["list", "--all", "--json"]);
    let mut first = [0; 10];
    list.stdout().read_exact(&mut first).unwrap();
    let ran = list.end();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn verbose_shows_requests_with_their_latency_and_the_log_variable_is_above_it() {
    let place = Place::new();
    let id = place.submit("t");
    let ran = place.qo(&["-v", "status", &id]);
    let line = ran.stderr.lines().find(|line| line.contains(&id)).unwrap();
    assert!(
        line.contains("GET") && line.contains(" ok ") && line.ends_with(" ms"),
        "{ran:#?}"
    );
    let silent = place
        .command(&["-v", "status", &id])
        .env("RUST_LOG", "off")
        .output()
        .unwrap();
    assert!(silent.stderr.is_empty());
    let loud = place
        .command(&["status", &id])
        .env("RUST_LOG", "qo_store=debug")
        .output()
        .unwrap();
    assert!(String::from_utf8(loud.stderr).unwrap().contains(&id));
}
