//! `cargo xtask man`: an example of the command's crate writes the pages, so that xtask need not be built with all of qo in it.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::typed::typed;

/// Where the pages go, from the root of the repository.
const DIRECTORY: &str = "target/man";

/// Writes the manual pages.
pub(crate) fn run() -> Result<ExitCode> {
    let mut command = qo_testkit::cargo()?;
    command.args(["run", "-p", "qo-cli", "--example", "man", "--", DIRECTORY]);
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
