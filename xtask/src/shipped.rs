//! The program that end-to-end tests start: `qo` with the features of the released one and no others.
//!
//! A build of the whole workspace would give it the features that the simulator, the fuzzers and the tests need. It is copied, because the next
//! build of the workspace replaces it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::run::succeeds;
use crate::steps::SHIPPED;
use crate::typed::typed;

/// Builds the program, and returns where it is.
pub(crate) fn program() -> Result<PathBuf> {
    let mut build = qo_testkit::cargo()?;
    build.args(["build", "--package", "qo-cli", "--bin", "qo"]);
    build.args(["--features", SHIPPED]);
    println!("$ {}", typed(&build));
    if !succeeds(&mut build)? {
        bail!("`{}` failed", typed(&build));
    }
    let target = qo_testkit::target_dir();
    let folder = target.join("shipped");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let program = folder.join("qo");
    // A process of an earlier run may still use the old one.
    let _ = fs::remove_file(&program);
    fs::copy(target.join("debug/qo"), &program)
        .with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}
