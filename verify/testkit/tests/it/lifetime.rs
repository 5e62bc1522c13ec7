//! The server stops with its owner, however the owner ends.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use qo_testkit::{SeaweedFs, wait_until};

/// Killing takes milliseconds; only a very busy machine needs more.
const LIMIT: Duration = Duration::from_secs(30);

fn answers(endpoint: &str) -> bool {
    let address: SocketAddr = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
    TcpStream::connect(address).is_ok()
}

fn assert_gone(endpoint: &str, data: &Path) {
    assert!(
        wait_until(LIMIT, || !answers(endpoint)),
        "{endpoint} still answers"
    );
    assert!(
        wait_until(LIMIT, || !data.exists()),
        "{} is still there",
        data.display()
    );
}

/// Another process that owns a server: the endpoint, and where its data is.
fn owner() -> (Child, String, PathBuf) {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_qo-test-s3"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .take(5)
        .map(Result::unwrap)
        .collect();
    let endpoint = lines[0]
        .strip_prefix("export QO_TEST_S3_ENDPOINT=")
        .unwrap()
        .to_owned();
    let data = PathBuf::from(lines[4].strip_prefix("# data in ").unwrap());
    assert!(answers(&endpoint) && data.is_dir());
    (owner, endpoint, data)
}

#[test]
fn dropping_the_handle_stops_the_server() {
    let server = SeaweedFs::start().unwrap();
    let endpoint = server.endpoint().to_owned();
    let data = server.data_dir().unwrap().to_path_buf();
    assert!(answers(&endpoint) && data.is_dir());
    drop(server);
    assert!(!answers(&endpoint), "it is gone when drop returns");
    assert!(!data.exists(), "{} is still there", data.display());
}

#[test]
fn the_server_stops_when_its_owner_is_killed() {
    let (mut owner, endpoint, data) = owner();
    // On Unix this is SIGKILL, which leaves the owner no chance to do anything.
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_gone(&endpoint, &data);
}

#[test]
fn the_server_stops_when_its_owner_exits() {
    let (mut owner, endpoint, data) = owner();
    drop(owner.stdin.take());
    assert!(owner.wait().unwrap().success());
    assert_gone(&endpoint, &data);
}
