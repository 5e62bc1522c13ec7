//! `cargo xtask sim`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::typed::typed;

/// Runs the simulator with these arguments, in the profile in which the tests have built it.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let mut command = qo_testkit::cargo()?;
    command
        .args(["run", "--quiet", "--package", "qo-sim", "--"])
        .args(arguments);
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
