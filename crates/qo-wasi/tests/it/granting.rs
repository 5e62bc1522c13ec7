//! Files, variables and the network: none unless granted.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;

use qo_wasi::{Grants, Input, Sandbox, SandboxConfig};

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

/// A preview 2 command that connects to a port of this machine. It exits with 1 if it may not even have a socket, and traps on any other error.
fn connect_to(port: u16) -> String {
    r#"(component
  (import "wasi:sockets/network@0.2.0" (instance $networks
    (export "network" (type (sub resource)))
    (type $codes (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
      "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable"
      "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted"
      "datagram-too-large" "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $codes)))
    (type $families (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $families)))
    (type $four (tuple u8 u8 u8 u8))
    (export "ipv4-address" (type $ipv4 (eq $four)))
    (type $eight (tuple u16 u16 u16 u16 u16 u16 u16 u16))
    (export "ipv6-address" (type $ipv6 (eq $eight)))
    (type $record4 (record (field "port" u16) (field "address" $ipv4)))
    (export "ipv4-socket-address" (type $address4 (eq $record4)))
    (type $record6 (record (field "port" u16) (field "flow-info" u32) (field "address" $ipv6) (field "scope-id" u32)))
    (export "ipv6-socket-address" (type $address6 (eq $record6)))
    (type $either (variant (case "ipv4" $address4) (case "ipv6" $address6)))
    (export "ip-socket-address" (type (eq $either)))))
  (alias export $networks "network" (type $network))
  (alias export $networks "error-code" (type $error-code))
  (alias export $networks "ip-address-family" (type $family))
  (alias export $networks "ip-socket-address" (type $address))
  (import "wasi:sockets/instance-network@0.2.0" (instance $instance-network
    (alias outer 1 $network (type $outer))
    (export "network" (type $here (eq $outer)))
    (export "instance-network" (func (result (own $here))))))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "input-stream" (type (sub resource)))
    (export "output-stream" (type (sub resource)))))
  (alias export $streams "input-stream" (type $input))
  (alias export $streams "output-stream" (type $output))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp
    (alias outer 1 $network (type $network-outer))
    (export "network" (type $network-here (eq $network-outer)))
    (alias outer 1 $error-code (type $code-outer))
    (export "error-code" (type $code (eq $code-outer)))
    (alias outer 1 $address (type $address-outer))
    (export "ip-socket-address" (type $address-here (eq $address-outer)))
    (alias outer 1 $input (type $input-outer))
    (export "input-stream" (type $input-here (eq $input-outer)))
    (alias outer 1 $output (type $output-outer))
    (export "output-stream" (type $output-here (eq $output-outer)))
    (export "tcp-socket" (type $socket (sub resource)))
    (export "[method]tcp-socket.start-connect" (func (param "self" (borrow $socket))
      (param "network" (borrow $network-here)) (param "remote-address" $address-here) (result (result (error $code)))))
    (export "[method]tcp-socket.finish-connect" (func (param "self" (borrow $socket))
      (result (result (tuple (own $input-here) (own $output-here)) (error $code)))))))
  (alias export $tcp "tcp-socket" (type $tcp-socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $creating
    (alias outer 1 $tcp-socket (type $socket-outer))
    (export "tcp-socket" (type $socket (eq $socket-outer)))
    (alias outer 1 $error-code (type $code-outer))
    (export "error-code" (type $code (eq $code-outer)))
    (alias outer 1 $family (type $family-outer))
    (export "ip-address-family" (type $family-here (eq $family-outer)))
    (export "create-tcp-socket" (func (param "address-family" $family-here)
      (result (result (own $socket) (error $code)))))))
  (core module $libc (memory (export "memory") 1))
  (core instance $memory (instantiate $libc))
  (core func $network (canon lower (func $instance-network "instance-network")))
  (core func $create (canon lower (func $creating "create-tcp-socket") (memory (core memory $memory "memory"))))
  (core func $start (canon lower (func $tcp "[method]tcp-socket.start-connect") (memory (core memory $memory "memory"))))
  (core func $finish (canon lower (func $tcp "[method]tcp-socket.finish-connect") (memory (core memory $memory "memory"))))
  (core module $program
    (import "host" "memory" (memory 1))
    (import "host" "network" (func $network (result i32)))
    (import "host" "create" (func $create (param i32 i32)))
    (import "host" "start" (func $start
      (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "finish" (func $finish (param i32 i32)))
    (func (export "run") (result i32) (local $socket i32)
      (call $create (i32.const 0) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then
        ;; Access denied.
        (if (i32.ne (i32.load8_u (i32.const 68)) (i32.const 1)) (then unreachable))
        (return (i32.const 1))))
      (local.set $socket (i32.load (i32.const 68)))
      (call $start (local.get $socket) (call $network) (i32.const 0) (i32.const PORT)
        (i32.const 127) (i32.const 0) (i32.const 0) (i32.const 1)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 64))
      (if (i32.load8_u (i32.const 64)) (then unreachable))
      (loop $waiting
        (call $finish (local.get $socket) (i32.const 64))
        (if (i32.eqz (i32.load8_u (i32.const 64))) (then (return (i32.const 0))))
        ;; It would block.
        (br_if $waiting (i32.eq (i32.load8_u (i32.const 68)) (i32.const 8))))
      unreachable))
  (core instance $instance (instantiate $program (with "host" (instance
    (export "memory" (memory $memory "memory")) (export "network" (func $network)) (export "create" (func $create))
    (export "start" (func $start)) (export "finish" (func $finish))))))
  (func $run (result (result)) (canon lift (core func $instance "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))"#
        .replace("PORT", &port.to_string())
}

async fn exit_code(text: &str, grants: Grants) -> i32 {
    let config = SandboxConfig {
        grants,
        ..SandboxConfig::default()
    };
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

#[tokio::test]
async fn there_is_no_network_without_a_grant() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let program = connect_to(listener.local_addr().unwrap().port());
    assert_eq!(exit_code(&program, Grants::default()).await, 1);
    assert!(listener.accept().is_err());
}

#[tokio::test]
async fn a_granted_directory_that_is_missing_fails_the_run_only() {
    let config = SandboxConfig {
        grants: Grants {
            directories: vec!["/no/such/directory::/data".parse().unwrap()],
            ..Grants::default()
        },
        ..SandboxConfig::default()
    };
    let sandbox = Arc::new(Sandbox::new(config).unwrap());
    let error = run(&sandbox, WRITE_FILE, Input::empty()).await.error();
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}
