//! Files and variables: none unless granted.

use std::fs;
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
