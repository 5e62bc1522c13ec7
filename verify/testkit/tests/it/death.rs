//! A server that dies while tests use it.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use qo_testkit::{KitError, SeaweedFs, wait_until};

const LIMIT: Duration = Duration::from_mins(1);

#[test]
fn the_death_of_the_server_is_reported_at_once_and_to_everybody_who_needs_it() {
    let (report, reports) = mpsc::channel();
    let server = SeaweedFs::start_reporting(move |death| {
        let _ = report.send(death);
    })
    .unwrap();
    let pid = std::fs::read_to_string(server.data_dir().unwrap().join("pid")).unwrap();
    let killed = Command::new("kill").args(["-9", pid.trim()]).status();
    assert!(killed.unwrap().success());
    let death = reports.recv_timeout(LIMIT).unwrap();
    let KitError::ServerDied { status, log } = &death else {
        panic!("{death}");
    };
    assert_eq!(status, "137");
    assert!(!log.is_empty());
    let mut error = None;
    assert!(wait_until(LIMIT, || {
        error = server.unique_bucket("dead").err();
        matches!(error, Some(KitError::ServerDied { .. }))
    }));
}

#[test]
fn a_server_that_is_stopped_on_purpose_has_not_died() {
    let (report, reports) = mpsc::channel::<KitError>();
    let server = SeaweedFs::start_reporting(move |death| {
        let _ = report.send(death);
    })
    .unwrap();
    drop(server);
    // The watcher has ended without a report when the sender is gone.
    assert!(reports.recv_timeout(LIMIT).is_err());
}
