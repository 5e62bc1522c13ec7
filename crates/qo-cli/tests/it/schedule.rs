//! `qo schedule`, and `[schedules]` in `qo.toml`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::workspace::Workspace;

#[test]
fn a_schedule_goes_through_every_operation() {
    let workspace = Workspace::new();
    let add = [
        "schedule",
        "add",
        "nightly",
        "--cron",
        "30 2 * * *",
        "--time-zone",
        "Europe/Berlin",
        "--type",
        "report",
        "--input",
        "{\"n\": 1.0}",
        "--overlap",
        "skip",
        "--jitter",
        "5m",
    ];
    let added = workspace.qo(&add);
    assert!(added.assert(0).stderr.contains("Next run"), "{added:#?}");
    // The same again changes nothing; another definition needs --replace.
    workspace.qo(&add).assert(0);
    let other = [
        "schedule", "add", "nightly", "--every", "1h", "--type", "report",
    ];
    workspace.qo(&other).assert(4);
    let replaced: Vec<&str> = other
        .iter()
        .copied()
        .chain(["--replace", "--json"])
        .collect();
    let info = workspace.qo(&replaced).assert(0).json("schedule");
    assert_eq!(info["spec"]["every_ms"], 3_600_000);
    let list = workspace.qo(&["schedule", "list"]);
    assert!(list.assert(0).stdout.contains("every 1 h"), "{list:#?}");
    let paused = workspace.qo(&["schedule", "pause", "nightly", "--json"]);
    let paused = paused.assert(0).json("schedule");
    assert!(paused["paused_at"].is_string() && paused["next"].is_null());
    let task = workspace.qo(&["schedule", "trigger", "nightly"]);
    let task = task.assert(0).stdout.trim().to_owned();
    let stored = workspace.qo(&["status", &task, "--json"]).json("task");
    assert_eq!(stored["tags"][0], "schedule:nightly");
    workspace.qo(&["schedule", "resume", "nightly"]).assert(0);
    let shown = workspace.qo(&["schedule", "show", "nightly"]);
    assert!(shown.assert(0).stdout.contains("(triggered)"), "{shown:#?}");
    let backfill = [
        "schedule",
        "backfill",
        "nightly",
        "--from",
        "2026-01-01T00:00:00Z",
        "--to",
        "2026-01-01T05:00:00Z",
    ];
    let ids = workspace.qo(&backfill).assert(0).stdout.clone();
    assert_eq!(ids.lines().count(), 6);
    let again = workspace.qo(&backfill);
    assert!(
        again.assert(0).stderr.contains("6 existed already"),
        "{again:#?}"
    );
    let line = workspace.qo(&["schedule", "list", "--json"]);
    line.assert(0).json("schedule");
    workspace.qo(&["schedule", "remove", "nightly"]).assert(0);
    for command in ["show", "pause", "resume", "trigger", "remove"] {
        workspace.qo(&["schedule", command, "nightly"]).assert(3);
    }
}

#[test]
fn tasks_keep_the_ordering_key_and_the_retry_delays_of_their_schedule() {
    let workspace = Workspace::new();
    let add = "schedule add books --every 1h --type book --ordering-key account-17 --on-failure stop \
               --retry-initial 10s --retry-max 5m --priority 2 --timeout 90s";
    let words: Vec<&str> = add.split_whitespace().collect();
    workspace.qo(&words).assert(0);
    let first = workspace.qo(&["schedule", "trigger", "books"]);
    let first = first.assert(0).stdout.trim().to_owned();
    let backfill = [
        "schedule",
        "backfill",
        "books",
        "--from",
        "2026-01-01T00:30:00Z",
        "--to",
        "2026-01-01T01:30:00Z",
    ];
    let backfilled = workspace.qo(&backfill);
    let second = backfilled.assert(0).stdout.trim().to_owned();
    assert!(
        backfilled.stderr.contains("Submitted 1 task."),
        "{backfilled:#?}"
    );
    for id in [&first, &second] {
        let task = workspace.qo(&["status", id, "--json"]).json("task");
        assert_eq!(task["ordering_key"], "account-17");
        assert_eq!(task["ordering_on_failure"], "stop");
        assert_eq!(task["retry_policy"]["initial_interval_ms"], 10_000);
        assert_eq!(task["retry_policy"]["max_interval_ms"], 300_000);
    }
    let waiting = workspace.qo(&["status", &second]);
    let behind = format!("behind {first}, which has the same ordering key");
    assert!(waiting.assert(0).stdout.contains(&behind), "{waiting:#?}");
    let shown = workspace.qo(&["schedule", "show", "books"]);
    for line in [
        "Order      account-17, stops on failure",
        "Priority   2",
        "Timeout    1 min 30 s",
    ] {
        assert!(shown.assert(0).stdout.contains(line), "{line}: {shown:#?}");
    }
    let json = workspace.qo(&["schedule", "show", "books", "--json"]);
    let json = json.assert(0).json("schedule");
    assert_eq!(json["spec"]["task"]["ordering_key"], "account-17");
}

/// Adds a schedule. `add` and `show` return its definition and its next run.
fn expect_definition(options: &[&str], spec: &Value, next: &str) {
    let workspace = Workspace::new();
    let add = ["schedule", "add", "nightly", "--json"];
    let add: Vec<&str> = add.iter().chain(options).copied().collect();
    for command in [&add[..], &["schedule", "show", "nightly", "--json"]] {
        let info = workspace.qo(command).assert(0).json("schedule");
        assert_eq!(info["spec"], *spec, "{command:?}");
        assert_eq!(info["next"], next, "{command:?}");
    }
}

#[test]
fn every_option_is_stored_in_the_definition() {
    let options = [
        "--cron=0 30 2 * * MON-FRI",
        "--time-zone=Europe/Berlin",
        "--type=report",
        "--input={\"n\": 1.5}",
        "--queue=imports",
        "--priority=3",
        "--expires-in=1h",
        "--timeout=90s",
        "--retries=7",
        "--tag=red",
        "--tag=round",
        "--ordering-key=account-17",
        "--on-failure=stop",
        "--limit-key=mail-api",
        "--group=acme",
        "--overlap=buffer-one",
        "--catch-up=2h",
        "--jitter=5m",
        "--start=2090-01-01T12:00:00Z",
        "--end=2099-01-01",
        "--retry-initial=10s",
        "--retry-max=5m",
        "--retry-multiplier=3",
        "--retry-jitter=0.5",
    ];
    let spec = json!({
        "cron": "0 30 2 * * MON-FRI",
        "time_zone": "Europe/Berlin",
        "start": "2090-01-01T12:00:00.000Z",
        "end": "2099-01-01T00:00:00.000Z",
        "overlap": "buffer_one",
        "catch_up_ms": 7_200_000,
        "jitter_ms": 300_000,
        "task": {
            "task_type": "report",
            "input": { "n": 1.5 },
            "queue": "imports",
            "priority": 3,
            "timeout_seconds": 90,
            "max_retries": 7,
            "retry_policy": {
                "initial_interval_ms": 10_000,
                "max_interval_ms": 300_000,
                "multiplier": 3.0,
                "jitter_percent": 0.5,
            },
            "expires_in_ms": 3_600_000,
            "tags": ["red", "round"],
            "ordering_key": "account-17",
            "ordering_on_failure": "stop",
            "limit_key": "mail-api",
            "fairness_group": "acme",
        },
    });
    // The first of January is a Sunday.
    expect_definition(&options, &spec, "2090-01-02T01:30:00.000Z");
}

#[test]
fn a_list_of_times_is_stored_in_the_definition() {
    let options = [
        "--at=2099-02-01T00:00:00Z",
        "--at=2099-01-01T00:00:00Z",
        "--type=announce",
        "--overlap=cancel-running",
    ];
    let spec = json!({
        "at": ["2099-02-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z"],
        "overlap": "cancel_running",
        "catch_up_ms": 3_600_000,
        "task": { "task_type": "announce" },
    });
    expect_definition(&options, &spec, "2099-01-01T00:00:00.000Z");
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let workspace = Workspace::new();
    let long_key = "k".repeat(257);
    for (words, reason) in [
        (&["--cron", "61 * * * *"][..], "not a cron line"),
        (
            &["--cron", "* * * * *", "--time-zone", "Europe/Atlantis"],
            "not a time zone",
        ),
        (&["--every", "0s"], "--every"),
        (&["--every", "500ms"], "1 second"),
        (
            &["--every", "1m", "--cron", "* * * * *"],
            "cannot be used with",
        ),
        (
            &[
                "--every",
                "1m",
                "--start",
                "2027-01-02T00:00:00Z",
                "--end",
                "2027-01-01T00:00:00Z",
            ],
            "end must be after",
        ),
        (&["--every", "1m", "--overlap", "never"], "expected allow"),
        (&["--at", "2020-01-01T00:00:00Z"], "never fires"),
        (&["--every", "1m", "--input", "{"], "--input"),
        (
            &["--every", "1m", "--ordering-key", long_key.as_str()],
            "256 bytes",
        ),
        (&["--every", "1m", "--on-failure", "stop"], "--ordering-key"),
        (&["--every", "1m", "--retry-jitter", "2"], "jitter"),
        (&[], "--cron <LINE>|--every <DURATION>|--at <TIME>"),
    ] {
        let base = ["schedule", "add", "a", "--type", "t"];
        let words: Vec<&str> = base.iter().chain(words).copied().collect();
        let result = workspace.qo(&words);
        assert!(result.assert(2).stderr.contains(reason), "{result:#?}");
    }
    workspace
        .qo(&["schedule", "add", "a/b", "--every", "1m", "--type", "t"])
        .assert(2);
    let list = workspace.qo(&["schedule", "list", "--json"]);
    assert_eq!(list.assert(0).stdout, "");
}

#[test]
fn a_worker_defines_the_schedules_of_its_file_and_fires_them() {
    let workspace = Workspace::new();
    workspace.file(
        "qo.toml",
        "[schedules.often]\nevery = \"1s\"\ntype = \"tick\"\ninput = { from = \"file\" }\n[worker.exec.tick]\ncommand = \"cat\"\n",
    );
    let worker = workspace.start(&["worker"]);
    let mut fired = false;
    for _ in 0..300 {
        let done = workspace.qo(&[
            "list",
            "--status",
            "completed",
            "--tag",
            "schedule:often",
            "--json",
        ]);
        let tasks = done.assert(0).stdout.lines().count();
        fired = tasks >= 2;
        if fired {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(fired, "no two tasks were fired within a minute");
    drop(worker);
    workspace.file("qo.toml", "[schedules.often]\nevery = \"never\"\ntype = \"tick\"\n[worker.exec.tick]\ncommand = \"cat\"\n");
    let refused = workspace.qo(&["worker"]);
    assert!(
        refused.assert(2).stderr.contains("schedules.often"),
        "{refused:#?}"
    );
}
