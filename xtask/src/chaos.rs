//! `cargo xtask chaos`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::run::succeeds;
use crate::typed::typed;

/// Builds the `qo` command and runs the chaos test on it.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let mut build = qo_testkit::cargo()?;
    build.args(["build", "--quiet", "--package", "qo-cli", "--bin", "qo"]);
    let mut command = qo_testkit::cargo()?;
    command
        .args(["run", "--quiet", "--package", "qo-chaos", "--"])
        .args(arguments);
    for command in [&mut build, &mut command] {
        println!("$ {}", typed(command));
        if !succeeds(command)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
