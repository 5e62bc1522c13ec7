//! `qo init`, `qo doctor` and `qo monitor`.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use crate::workspace::Workspace;

#[test]
fn init_prepares_a_store_once() {
    let workspace = Workspace::new();
    let outcome = |words: &[&str]| {
        let words: Vec<&str> = ["init", "--json", "--probe-budget", "1s"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let result = workspace.qo(&words);
        let report: serde_json::Value = serde_json::from_str(&result.assert(0).stdout).unwrap();
        let steps = report["steps"].as_array().unwrap().clone();
        let step = steps
            .iter()
            .find(|step| step["name"] == "versioning")
            .unwrap();
        step["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(outcome(&["--dry-run"]), "would_do");
    assert_eq!(outcome(&["--no-versioning"]), "not_asked");
    assert_eq!(outcome(&[]), "done");
    assert_eq!(outcome(&[]), "already_so");
    let shown = workspace.qo(&["init", "--dry-run"]);
    assert!(shown.assert(0).stdout.contains("unchanged"), "{shown:#?}");
}

#[test]
fn doctor_distinguishes_healthy_and_unreachable_stores() {
    let workspace = Workspace::new();
    let result = workspace.qo(&["doctor", "--probe-budget", "1s", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&result.assert(0).stdout).unwrap();
    assert_eq!(report["checks"].as_array().unwrap().len(), 10);
    // Tasks without a worker cause a warning, which is a failure with --strict.
    workspace.submit("t");
    let result = workspace.qo(&["doctor", "--probe-budget", "1s"]);
    assert!(result.assert(0).stdout.contains("warning"), "{result:#?}");
    workspace
        .qo(&["doctor", "--probe-budget", "1s", "--strict"])
        .assert(9);
    let mut unreachable = workspace.bare(&["--store", "s3://b", "doctor"]);
    unreachable.envs([
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("S3_ENDPOINT", "http://127.0.0.1:9"),
    ]);
    let output = unreachable.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{stdout}");
    assert!(
        stdout.contains("failed") && stdout.contains("skipped"),
        "{stdout}"
    );
}

#[test]
fn monitor_runs_one_pass_or_until_it_is_stopped() {
    let workspace = Workspace::new();
    workspace.submit("t");
    let result = workspace.qo(&["monitor", "--once", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&result.assert(0).stdout).unwrap();
    assert_eq!(report["leases_expired"], 0);
    assert!(report["tasks_looked_at"].as_u64().unwrap() >= 1, "{report}");
    for signal in [Signal::INT, Signal::TERM] {
        let mut monitor =
            workspace.start(&["monitor", "--check-interval", "1", "--sweep-interval", "0"]);
        let mut lines = BufReader::new(monitor.stderr()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(
            first.contains("monitoring: leases every 1 s, sweeps never"),
            "{first}"
        );
        monitor.signal(signal);
        assert!(lines.any(|line| line.unwrap().contains("stopping")));
        monitor.end().assert(0);
    }
    workspace
        .qo(&["monitor", "--check-interval", "0"])
        .assert(2);
    let mut invalid = workspace.command(&["monitor", "--once"]);
    invalid.env("QO_MONITOR_CHECK_INTERVAL", "often");
    assert_eq!(invalid.output().unwrap().status.code(), Some(2));
}
