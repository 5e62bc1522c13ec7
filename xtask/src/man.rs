//! `cargo xtask man`.
//!
//! An example in the crate of the command writes the pages, so that xtask does not depend on that crate.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::typed::typed;

/// The directory of the pages, relative to the root of the repository.
pub(crate) const DIRECTORY: &str = "target/man";

/// Writes the manual pages.
pub(crate) fn run() -> Result<ExitCode> {
    let mut command = qo_testkit::cargo()?;
    command.args(["run", "--package", "qo-cli", "--example", "man", "--"]);
    command.arg(DIRECTORY);
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
