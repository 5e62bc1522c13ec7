//! Runs programs with inherited output.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::typed::typed;

/// Whether a command succeeds.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    Ok(status.success())
}

/// The exit code of xtask.
pub(crate) fn exit_code(holds: bool) -> ExitCode {
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
