//! Runs commands and reports their failures.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::typed::typed;

/// Runs the command and returns its standard output. Fails with its standard error.
pub(super) fn capture(command: &mut Command) -> Result<String> {
    capture_with(command, b"")
}

/// The same, with this standard input, which fits into a pipe.
pub(super) fn capture_with(command: &mut Command, input: &[u8]) -> Result<String> {
    let shown = typed(command);
    let cannot_run = || format!("cannot run `{shown}`");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(cannot_run)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ignores its input may have ended.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().with_context(cannot_run)?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}: {}", output.status, errors.trim());
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of `{shown}` is not UTF-8"))
}

/// Prints the command and runs it with inherited output.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let shown = typed(command);
    println!("$ {shown}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Whether the program can be run.
pub(super) fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
