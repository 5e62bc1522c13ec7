//! `cargo xtask chaos`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::run::{exit_code, succeeds};
use crate::shipped;
use crate::typed::typed;

/// Builds the `qo` command as it is released, and runs the chaos test on it.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let program = shipped::program()?;
    let mut command = qo_testkit::cargo()?;
    command
        .args(["run", "--quiet", "--package", "qo-chaos", "--"])
        .args(arguments)
        .env(qo_testkit::PROGRAM_VARIABLE, program);
    println!("$ {}", typed(&command));
    Ok(exit_code(succeeds(&mut command)?))
}
