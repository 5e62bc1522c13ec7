//! A server that dies while tests use it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
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
    kill(&server);
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

fn kill(server: &SeaweedFs) {
    let pid = std::fs::read_to_string(server.data_dir().unwrap().join("pid")).unwrap();
    let killed = Command::new("kill").args(["-9", pid.trim()]).status();
    assert!(killed.unwrap().success());
}

/// Set for the process in which [`a_process_that_uses_the_server`] does something.
const USER_VARIABLE: &str = "QO_TEST_DEATH_USER";

/// Not a test of its own: the next one runs it in another process.
#[test]
fn a_process_that_uses_the_server() {
    if std::env::var_os(USER_VARIABLE).is_none() {
        return;
    }
    let server = SeaweedFs::shared().unwrap();
    server.unique_bucket("user").unwrap();
    println!("in use");
    std::thread::sleep(LIMIT);
}

#[test]
fn a_test_process_ends_when_the_server_of_another_process_dies() {
    let server = SeaweedFs::start_reporting(|_| {}).unwrap();
    let mut user = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "death::a_process_that_uses_the_server",
            "--nocapture",
        ])
        .envs(server.environment())
        .env(USER_VARIABLE, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(user.stdout.take().unwrap()).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.contains("in use"))
    );
    kill(&server);
    let ended = user.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(86), "{said}");
    assert!(said.contains("died with status 137"), "{said}");
}
