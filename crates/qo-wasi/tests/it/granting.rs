//! Files, variables and the network: none unless granted.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

use qo_wasi::{Grants, Input, Network, Sandbox, SandboxConfig};

use crate::support::run;

/// Exits with the number of environment variables.
const COUNT_VARIABLES: &str = r#"(module
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (if (call $sizes (i32.const 0) (i32.const 4)) (then unreachable))
    (call $exit (i32.load (i32.const 0)))))"#;

/// Opens the file `f` in the first granted directory for writing, and exits with the error number, or 100 if the file is open.
const WRITE_FILE: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "f")
  (func (export "_start") (local $error i32)
    (local.set $error (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 1)
      (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 0)))
    (call $exit (if (result i32) (local.get $error) (then (local.get $error)) (else (i32.const 100))))))"#;

/// The error for a file descriptor that is not open.
const BAD_FILE: i32 = 8;

/// A preview 2 command that connects to a port of this machine.
fn connect_to(port: u16) -> String {
    include_str!("connect.wat").replace("PORT", &port.to_string())
}

async fn exit_code(text: &str, grants: Grants) -> i32 {
    let mut config = SandboxConfig::default();
    config.grants = grants;
    let sandbox = Arc::new(Sandbox::new(config).unwrap());
    run(&sandbox, text, Input::empty()).await.code()
}

#[tokio::test]
async fn there_are_no_variables_unless_granted() {
    assert_eq!(exit_code(COUNT_VARIABLES, Grants::default()).await, 0);
    let grants = Grants {
        environment: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
        ..Grants::default()
    };
    assert_eq!(exit_code(COUNT_VARIABLES, grants).await, 2);
}

#[tokio::test]
async fn there_are_no_files_unless_granted() {
    let directory = tempfile::tempdir().unwrap();
    let grants = |suffix: &str| {
        let text = format!("{}::/data{suffix}", directory.path().display());
        Grants {
            directories: vec![text.parse().unwrap()],
            ..Grants::default()
        }
    };
    assert_eq!(exit_code(WRITE_FILE, Grants::default()).await, BAD_FILE);
    assert_ne!(exit_code(WRITE_FILE, grants(":ro")).await, 100);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(exit_code(WRITE_FILE, grants("")).await, 100);
    assert!(directory.path().join("f").exists());
}

/// Whether a program connects to a server of this machine, with these words as the grant. `PORT` in a word is that of the server.
async fn connects(words: &[&str]) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let words: Vec<_> = words
        .iter()
        .map(|word| word.replace("PORT", &port.to_string()))
        .collect();
    let grants = Grants {
        network: Network::parse(words.iter().map(String::as_str)).unwrap(),
        ..Grants::default()
    };
    let is_connected = exit_code(&connect_to(port), grants).await == 0;
    assert_eq!(listener.accept().is_ok(), is_connected);
    is_connected
}

#[tokio::test]
async fn there_is_no_network_unless_granted() {
    assert!(!connects(&[]).await);
    assert!(connects(&["all"]).await);
}

#[tokio::test]
async fn a_granted_peer_can_be_reached_and_no_other() {
    assert!(connects(&["127.0.0.1:PORT"]).await);
    assert!(connects(&["10.0.0.1:1", "127.0.0.1:*"]).await);
    assert!(connects(&["localhost:PORT"]).await);
    assert!(!connects(&["127.0.0.1:1", "127.0.0.2:PORT"]).await);
    assert!(!connects(&["localhost:1"]).await);
}

#[tokio::test]
async fn a_granted_directory_that_is_missing_fails_the_run_only() {
    let mut config = SandboxConfig::default();
    config.grants.directories = vec!["/no/such/directory::/data".parse().unwrap()];
    let sandbox = Arc::new(Sandbox::new(config).unwrap());
    let error = run(&sandbox, WRITE_FILE, Input::empty()).await.error();
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}
