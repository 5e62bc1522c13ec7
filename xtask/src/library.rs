//! The step `library`: what a user of the crate `qo` builds.
//!
//! The combinations of cargo features that users choose compile without warnings, so does the command without optional features, and
//! the program of the crate's README runs in a project outside the workspace, where the samples of the main README and
//! the guides compile too.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::root::root;
use crate::steps::{Verdict, verdict};
use crate::typed::typed;

/// Features of `qo`, without the default ones. The other tests build all of them.
const COMBINATIONS: [&str; 5] = ["", "sqlite", "s3,slate", "remote", "mdns"];

/// Runs the step.
pub(crate) fn step() -> Result<Verdict> {
    for features in COMBINATIONS {
        let mut check = qo_testkit::cargo()?;
        check
            .args(["clippy", "--package", "qo", "--no-default-features"])
            .args(["--features", features])
            .args(["--", "-D", "warnings"]);
        let result = run(&mut check)?;
        if result != Verdict::Passed {
            return Ok(result);
        }
    }
    // The command as `cargo run` builds it.
    let mut check = qo_testkit::cargo()?;
    check.args(["clippy", "--package", "qo-cli", "--", "-D", "warnings"]);
    let result = run(&mut check)?;
    if result != Verdict::Passed {
        return Ok(result);
    }
    let mut fresh_project = Command::new("sh");
    fresh_project
        .arg("crates/qo/tests/fresh-project.sh")
        .current_dir(root());
    run(&mut fresh_project)
}

fn run(command: &mut Command) -> Result<Verdict> {
    println!("$ {}", typed(command));
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    Ok(verdict(command, status))
}
