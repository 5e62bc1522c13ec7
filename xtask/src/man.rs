//! `cargo xtask man`.
//!
//! An example in the crate of the command writes the pages, so that xtask does not depend on that crate.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::metadata::Metadata;
use crate::root::root;
use crate::steps::SHIPPED;
use crate::typed::typed;

/// The directory of the pages, relative to the root of the repository.
pub(crate) const DIRECTORY: &str = "target/man";

/// Writes the manual pages.
pub(crate) fn run() -> Result<ExitCode> {
    // The selection of the tests, so that the libraries are built once for both. The pages are those of the released command.
    let mut build = qo_testkit::cargo()?;
    build.args(["build", "--workspace", "--features", SHIPPED]);
    build.args(["--example", "man"]);
    let status = build
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&build)))?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    let target = Metadata::of_workspace()?.target_directory;
    let mut command = Command::new(target.join("debug/examples/man"));
    command.arg(DIRECTORY).current_dir(root());
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
