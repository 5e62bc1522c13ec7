//! `cargo xtask bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::cargo;

/// Runs the benchmarks.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let mut command = cargo::command()?;
    command.args(["bench", "-p", "qo-core"]).args(arguments);
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", cargo::typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
