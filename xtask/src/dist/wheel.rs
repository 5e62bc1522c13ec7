//! The Python wheel, written by a Python script without dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::contents::Contents;
use super::{shell, version};
use crate::root::root;

/// Builds the wheel.
pub(super) fn build(contents: &Contents, out: &Path) -> Result<PathBuf> {
    let sources = root().join("packaging/python");
    let glibc = contents.glibc;
    let platform = format!(
        "manylinux_{}_{}_{}",
        glibc.major, glibc.minor, contents.platform.rust
    );
    let mut python = Command::new("python3");
    python
        .arg(sources.join("build_wheel.py"))
        .arg("--binary")
        .arg(&contents.program)
        .args(["--version", &version::python(&contents.version)?])
        .args(["--platform", &platform])
        .arg("--description")
        .arg(sources.join("README.md"))
        .args(["--epoch", &contents.epoch.to_string()])
        .arg("--out")
        .arg(out);
    for licence in &contents.licences {
        python.arg("--licence").arg(licence);
    }
    Ok(PathBuf::from(shell::capture(&mut python)?.trim()))
}
