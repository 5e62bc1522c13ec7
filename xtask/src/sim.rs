//! `cargo xtask sim`.
//!
//! With `--exact`, everything is built again under `target/exact` with a tokio whose scheduler takes a seed. Then runs on slate are
//! deterministic to the byte, too. Tokio takes a seed only if it is built with `tokio_unstable`, which the shipped program is not.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::mutants;
use crate::run::{exit_code, succeeds};
use crate::typed::typed;

/// Runs the simulator with these arguments, in the profile of the tests, so that their build is reused.
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
    Ok(exit_code(succeeds(&mut command)?))
}
