//! The step `deny`: licences and sources of dependencies.
//!
//! cargo-deny checks them where it is installed. Elsewhere a built-in check enforces the same `deny.toml`, so that no machine skips the step.

mod check;
mod licence;
mod policy;

use std::fs;
use std::process::Stdio;

use anyhow::{Context as _, Result};

use self::policy::Policy;
use crate::metadata::Metadata;
use crate::root::root;
use crate::steps::Verdict;

/// Whether `cargo deny` can be run.
pub(crate) fn is_installed() -> Result<bool> {
    let mut command = qo_testkit::cargo()?;
    command
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command.status().context("cannot run cargo")?.success())
}

/// Runs the built-in check.
pub(crate) fn run_built_in() -> Result<Verdict> {
    println!("cargo-deny is not installed; running the built-in check");
    let text = fs::read_to_string(root().join("deny.toml")).context("cannot read deny.toml")?;
    let policy = Policy::parse(&text)?;
    let metadata = Metadata::of_dependencies(policy.graph.all_features)?;
    let violations = check::violations(&metadata, &policy);
    for violation in &violations {
        println!("{violation}");
    }
    Ok(if violations.is_empty() {
        println!("{} packages checked", metadata.packages.len());
        Verdict::Passed
    } else {
        let count = violations.len();
        Verdict::Failed(format!("{count} violations of deny.toml, listed above"))
    })
}
