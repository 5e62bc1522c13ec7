//! The steps of `cargo xtask test`: everything that must hold before a change is merged.

use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use qo_testkit::{SeaweedFs, wait_until};

use crate::mutants;
use crate::typed::typed;
use crate::ui;

/// A fetch takes seconds where the database can be had at all.
const ADVISORIES_LIMIT: Duration = Duration::from_mins(2);

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The code is formatted.
    Fmt,
    /// Licences, sources and duplicates of dependencies.
    Deny,
    /// Known security holes in dependencies.
    Advisories,
    /// Lints.
    Clippy,
    /// The documentation builds.
    Docs,
    /// Tests beside the code.
    Unit,
    /// Tests of whole crates.
    Integration,
    /// Examples in the documentation.
    Doctests,
    /// Planted bugs are found.
    Mutants,
    /// The dashboard, in a browser.
    Ui,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds.
    Passed,
    /// It does not hold, or could not be found out, because of this.
    Failed(String),
    /// It was not tried, because of this.
    Skipped(String),
}

impl Step {
    /// All, the quick ones first. The three kinds of tests run one after the other and are built once.
    pub(crate) const ALL: [Self; 10] = [
        Self::Fmt,
        Self::Deny,
        Self::Advisories,
        Self::Clippy,
        Self::Docs,
        Self::Unit,
        Self::Integration,
        Self::Doctests,
        Self::Mutants,
        Self::Ui,
    ];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Deny => "deny",
            Self::Advisories => "advisories",
            Self::Clippy => "clippy",
            Self::Docs => "docs",
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::Doctests => "doctests",
            Self::Mutants => "mutants",
            Self::Ui => "ui",
        }
    }

    /// What it finds out, in a few words.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Fmt => "the code is formatted",
            Self::Deny => {
                "licences and sources of dependencies are allowed (skipped without cargo-deny)"
            }
            Self::Advisories => {
                "dependencies have no known security holes (skipped without cargo-deny or network)"
            }
            Self::Clippy => "no lint warns",
            Self::Docs => "the documentation builds without a warning",
            Self::Unit => "tests beside the code, property tests included",
            Self::Integration => {
                "tests of whole crates, among them conformance on a real S3 server"
            }
            Self::Doctests => "examples in the documentation work",
            Self::Mutants => {
                "the simulator finds planted bugs (a few each day; all with `cargo xtask sim --mutants`)"
            }
            Self::Ui => {
                "the dashboard in a browser, on a real S3 server (installs Chromium and two packages)"
            }
        }
    }

    /// The step of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// The arguments to cargo that find it out.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Fmt => &["fmt", "--all", "--check"],
            Self::Deny => &[
                "deny",
                "check",
                "--hide-inclusion-graph",
                "licenses",
                "bans",
                "sources",
            ],
            Self::Advisories => &["deny", "check", "advisories"],
            Self::Clippy => &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
            // Naming the examples makes cargo choose the same features of dependencies as for clippy; without them,
            // some twenty are checked once more.
            Self::Docs => &[
                "doc",
                "--workspace",
                "--no-deps",
                "--lib",
                "--bins",
                "--examples",
            ],
            Self::Unit => &[
                "test",
                "--workspace",
                "--no-fail-fast",
                "--lib",
                "--bins",
                "--examples",
            ],
            Self::Integration => &["test", "--workspace", "--no-fail-fast", "--test", "*"],
            Self::Doctests => &["test", "--workspace", "--no-fail-fast", "--doc"],
            // It has commands of its own.
            Self::Mutants => &[],
            Self::Ui => ui::BUILD,
        }
    }

    /// Runs it. What it prints goes straight to the caller's terminal or log.
    pub(crate) fn run(self) -> Verdict {
        self.try_to_run()
            .unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")))
    }

    fn try_to_run(self) -> Result<Verdict> {
        let mut command = qo_testkit::cargo()?;
        command.args(self.arguments());
        match self {
            Self::Deny | Self::Advisories if !has_cargo_deny()? => {
                let reason = "cargo-deny is not installed (`cargo install --locked cargo-deny`)";
                return Ok(Verdict::Skipped(reason.to_owned()));
            }
            Self::Advisories if !fetch_advisories()? => {
                return Ok(Verdict::Skipped(
                    "the advisory database cannot be fetched".to_owned(),
                ));
            }
            Self::Docs => {
                command.env("RUSTDOCFLAGS", "-D warnings");
            }
            Self::Mutants => return mutants::step(),
            Self::Ui => return ui::run(command),
            Self::Unit | Self::Integration => {
                // One server for all test processes, instead of one each.
                let server =
                    SeaweedFs::shared().context("cannot set up the S3 server for the tests")?;
                command.envs(server.environment());
            }
            _ => {}
        }
        println!("$ {}", typed(&command));
        let status = command
            .status()
            .with_context(|| format!("cannot run `{}`", typed(&command)))?;
        Ok(verdict(&command, status))
    }
}

pub(crate) fn verdict(command: &Command, status: ExitStatus) -> Verdict {
    if status.success() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("`{}` ended with {status}", typed(command)))
    }
}

fn has_cargo_deny() -> Result<bool> {
    let mut command = qo_testkit::cargo()?;
    command
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command.status().context("cannot run cargo")?.success())
}

/// Whether the database of security holes is there and up to date now.
fn fetch_advisories() -> Result<bool> {
    let mut command = qo_testkit::cargo()?;
    command
        .args(["deny", "fetch", "db"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut fetch = command.spawn().context("cannot run cargo")?;
    let mut ended = None;
    wait_until(ADVISORIES_LIMIT, || {
        ended = fetch.try_wait().ok().flatten();
        ended.is_some()
    });
    if ended.is_none() {
        fetch
            .kill()
            .context("cannot end a fetch that takes too long")?;
        fetch
            .wait()
            .context("cannot end a fetch that takes too long")?;
    }
    Ok(ended.is_some_and(|status| status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_steps() {
        for step in Step::ALL {
            assert_eq!(Step::from_name(step.name()), Some(step));
        }
        assert_eq!(Step::from_name("nothing"), None);
    }

    #[test]
    fn a_failed_command_is_named_in_the_verdict() {
        let mut command = qo_testkit::cargo().unwrap();
        command.arg("no-such-command").stderr(Stdio::null());
        let status = command.status().unwrap();
        let Verdict::Failed(reason) = verdict(&command, status) else {
            panic!("it should have failed");
        };
        assert!(reason.contains("cargo no-such-command"), "{reason}");
    }
}
