//! The step `ui`: the tests of the dashboard, some of them in a browser, on the S3 server that all tests share.
//!
//! It installs Chromium with the system's package manager if Chromium is missing, and two packages from npm into
//! `crates/qo-ui/ui/tests/node_modules`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use qo_testkit::SeaweedFs;

use crate::root::root;
use crate::steps::{SHIPPED, Verdict, verdict};
use crate::typed::typed;

/// Arguments to cargo that build the programs under test.
///
/// They select the whole workspace, so that cargo uses the same features as for the other tests and reuses their libraries.
pub(crate) const BUILD: &[&str] = &[
    "build",
    "--workspace",
    "--features",
    SHIPPED,
    "--bin",
    "qo",
    "--example",
    "dashboard_story",
    "--example",
    "echo_worker",
];

/// Builds the programs with the given command, installs what is missing and runs the tests.
pub(crate) fn run(mut build: Command) -> Result<Verdict> {
    if let Some(missing) = missing_programs()? {
        return Ok(Verdict::Failed(missing));
    }
    println!("$ {}", typed(&build));
    let built = build.status().context("cannot run cargo")?;
    if !built.success() {
        return Ok(verdict(&build, built));
    }
    let mut install = Command::new("npm");
    install
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(tests_dir())
        .stdin(Stdio::null());
    println!("$ npm ci --ignore-scripts");
    if !install.status().context("cannot run npm")?.success() {
        return Ok(Verdict::Failed(
            "`npm ci` failed in crates/qo-ui/ui/tests: check that npm can reach its registry"
                .to_owned(),
        ));
    }
    let server =
        SeaweedFs::shared_with_others().context("cannot start the S3 server for the tests")?;
    let mut test = Command::new("node");
    test.args(["--test", "--test-reporter=spec", "unit", "browser"])
        .current_dir(tests_dir())
        .envs(server.environment())
        .envs(server.shell())
        .env("QO_UI_PROGRAMS_BUILT", "1")
        .stdin(Stdio::null());
    println!("$ node --test unit browser");
    let status = test.status().context("cannot run node")?;
    Ok(if status.success() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!(
            "`node --test` in crates/qo-ui/ui/tests ended with {status}"
        ))
    })
}

fn tests_dir() -> PathBuf {
    root().join("crates/qo-ui/ui/tests")
}

/// Installs Chromium if needed. Returns advice if a program is missing and could not be installed.
fn missing_programs() -> Result<Option<String>> {
    if !works("node", "--version") || !works("npm", "--version") {
        let advice = "node and npm are needed, version 20 or later (on Debian: `apt-get install nodejs npm`)";
        return Ok(Some(advice.to_owned()));
    }
    if has_browser() {
        return Ok(None);
    }
    if works("apt-get", "--version") {
        println!("$ apt-get install -y --no-install-recommends chromium");
        let mut install = Command::new("apt-get");
        install
            .args(["install", "-y", "--no-install-recommends", "chromium"])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        install.status().context("cannot run apt-get")?;
    }
    if has_browser() {
        return Ok(None);
    }
    let advice =
        "Chromium is needed and could not be installed (on Debian: `apt-get install chromium`)";
    Ok(Some(advice.to_owned()))
}

fn has_browser() -> bool {
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .any(|program| works(program, "--version"))
}

fn works(program: &str, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
