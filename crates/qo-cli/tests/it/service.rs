//! Preparing a store, looking it over, and keeping it healthy.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use crate::place::Place;

#[test]
fn a_store_is_prepared_once_and_found_so_afterwards() {
    let place = Place::new();
    let outcome = |words: &[&str]| {
        let words: Vec<&str> = ["init", "--json", "--probe-budget", "1s"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let ran = place.qo(&words);
        let report: serde_json::Value = serde_json::from_str(&ran.assert(0).stdout).unwrap();
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
    let shown = place.qo(&["init", "--dry-run"]);
    assert!(shown.assert(0).stdout.contains("unchanged"), "{shown:#?}");
}

#[test]
fn the_doctor_finds_a_store_well_and_a_missing_one_not() {
    let place = Place::new();
    let ran = place.qo(&["doctor", "--probe-budget", "1s", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.assert(0).stdout).unwrap();
    assert_eq!(report["checks"].as_array().unwrap().len(), 8);
    // Tasks that nobody works on are worth a warning, which is a failure if one asks for it.
    place.submit("t");
    let ran = place.qo(&["doctor", "--probe-budget", "1s"]);
    assert!(ran.assert(0).stdout.contains("warning"), "{ran:#?}");
    place
        .qo(&["doctor", "--probe-budget", "1s", "--strict"])
        .assert(9);
    let mut away = place.bare(&["--store", "s3://b", "doctor"]);
    away.envs([
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("S3_ENDPOINT", "http://127.0.0.1:9"),
    ]);
    let output = away.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{stdout}");
    assert!(
        stdout.contains("failed") && stdout.contains("skipped"),
        "{stdout}"
    );
}

#[test]
fn a_monitor_does_one_round_or_goes_on_until_it_is_stopped() {
    let place = Place::new();
    place.submit("t");
    let ran = place.qo(&["monitor", "--once", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.assert(0).stdout).unwrap();
    assert_eq!(report["leases_expired"], 0);
    assert!(report["tasks_looked_at"].as_u64().unwrap() >= 1, "{report}");
    for signal in [Signal::INT, Signal::TERM] {
        let mut monitor =
            place.start(&["monitor", "--check-interval", "1", "--sweep-interval", "0"]);
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
    place.qo(&["monitor", "--check-interval", "0"]).assert(2);
    let mut nonsense = place.command(&["monitor", "--once"]);
    nonsense.env("QO_MONITOR_CHECK_INTERVAL", "often");
    assert_eq!(nonsense.output().unwrap().status.code(), Some(2));
}
