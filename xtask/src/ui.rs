//! The step `ui`: the tests of the dashboard, some of them in a browser, on the S3 server that all tests share.
//!
//! It installs Chromium with the system's package manager if Chromium is missing, and two packages from npm into
//! `crates/qo-ui/ui/tests/node_modules`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};
use qo_testkit::SeaweedFs;

use crate::lanes::{Job, JobResult, Load};
use crate::repeat::Runner;
use crate::root::root;
use crate::shipped;
use crate::steps::{SHIPPED, Verdict};
use crate::typed::typed;

/// Arguments to cargo that build the programs that the tests need besides `qo`.
///
/// They select the whole workspace, so that cargo uses the same features as for the other tests and reuses their libraries.
const BUILD: &[&str] = &[
    "build",
    "--workspace",
    "--features",
    SHIPPED,
    "--example",
    "dashboard_story",
    "--example",
    "echo_worker",
];

/// Builds the programs and installs what is missing. Returns the program that runs the tests.
pub(crate) fn prepare() -> Result<Job> {
    if let Some(missing) = missing_programs()? {
        bail!(missing);
    }
    let program = shipped::program()?;
    let mut build = qo_testkit::cargo()?;
    build.args(BUILD);
    run(&mut build)?;
    let mut install = Command::new("npm");
    install
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(tests_dir())
        .stdin(Stdio::null());
    run(&mut install).context(
        "cannot install what the tests of the dashboard need: check that npm can reach its registry",
    )?;
    let server =
        SeaweedFs::shared_with_others().context("cannot start the S3 server for the tests")?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-reporter=spec"])
        .arg(format!("--test-concurrency={cores}"))
        .args(["unit", "browser"])
        .current_dir(tests_dir())
        .envs(server.environment())
        .envs(server.shell())
        .env(qo_testkit::PROGRAM_VARIABLE, program)
        .env("QO_UI_PROGRAMS_BUILT", "1");
    Ok(Job {
        name: "the tests of the dashboard".to_owned(),
        load: Load::Waits,
        runner: Runner::Node,
        command,
    })
}

/// The verdict on the program that runs the tests.
pub(crate) fn verdict(result: &JobResult) -> Verdict {
    match &result.failure {
        None => Verdict::of_unstable(&result.unstable),
        Some(failure) => Verdict::Failed(format!(
            "`node --test unit browser` in crates/qo-ui/ui/tests failed: {failure}"
        )),
    }
}

fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", typed(command));
    let status = command.status().context("cannot run it")?;
    if !status.success() {
        bail!("`{}` ended with {status}", typed(command));
    }
    Ok(())
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
