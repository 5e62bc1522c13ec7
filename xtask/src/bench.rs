//! `cargo xtask bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::typed::typed;

/// Runs the benchmarks.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let mut command = qo_testkit::cargo()?;
    command.args(["bench", "-p", "qo-core"]).args(arguments);
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
