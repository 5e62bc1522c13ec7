//! `cargo xtask sim`.
//!
//! With `--exact`, everything is built once more, below `target/exact`, with a tokio that takes a seed: then a seed decides a run on slate
//! to the byte, too. Tokio offers that only to those who build it with `tokio_unstable`, which what ships is not.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::mutants;
use crate::typed::typed;

/// Runs the simulator with these arguments, in the profile in which the tests have built it.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    if mutants::concerns(arguments) {
        return mutants::sim(arguments);
    }
    let is_exact = arguments.iter().any(|word| word == "--exact");
    let mut command = qo_testkit::cargo()?;
    command.args(["run", "--quiet", "--package", "qo-sim"]);
    if is_exact {
        let mut flags = env::var_os("RUSTFLAGS").unwrap_or_default();
        flags.push(" --cfg tokio_unstable");
        command
            .env("RUSTFLAGS", flags)
            .args(["--target-dir", "target/exact"]);
    }
    command
        .arg("--")
        .args(arguments.iter().filter(|word| *word != "--exact"));
    println!("$ {}", typed(&command));
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
