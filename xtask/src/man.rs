//! `cargo xtask man`.
//!
//! An example in the crate of the command writes the pages, so that xtask does not depend on that crate.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::metadata::Metadata;
use crate::root::root;
use crate::run::{exit_code, succeeds};
use crate::steps::SHIPPED;

/// The directory of the pages, relative to the root of the repository.
pub(crate) const DIRECTORY: &str = "target/man";

/// Writes the manual pages.
pub(crate) fn run() -> Result<ExitCode> {
    // The selection of the tests, so that the libraries are built once for both. The pages are those of the released command.
    let mut build = qo_testkit::cargo()?;
    build.args(["build", "--workspace", "--features", SHIPPED]);
    build.args(["--example", "man"]);
    if !succeeds(&mut build)? {
        return Ok(ExitCode::FAILURE);
    }
    let target = Metadata::of_workspace()?.target_directory;
    let mut command = Command::new(target.join("debug/examples/man"));
    command.arg(DIRECTORY).current_dir(root());
    Ok(exit_code(succeeds(&mut command)?))
}
