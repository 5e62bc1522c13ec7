//! The steps of `cargo xtask test`. All of them have to pass before a change is merged.

use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use qo_testkit::{SeaweedFs, wait_until};

use crate::deny;
use crate::integration;
use crate::lanes;
use crate::library;
use crate::mutants;
use crate::typed::typed;
use crate::ui;

/// The cargo features of the released command. All steps select them, so that they share their libraries.
pub(crate) const SHIPPED: &str = "qo-cli/wasi,qo-cli/cluster";

/// Fetching the advisory database takes seconds if it can be reached.
const ADVISORIES_LIMIT: Duration = Duration::from_mins(2);

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Checks the formatting of the code.
    Fmt,
    /// Checks licences and sources of dependencies.
    Deny,
    /// Checks dependencies for known vulnerabilities.
    Advisories,
    /// Runs the linter.
    Clippy,
    /// Builds the documentation.
    Docs,
    /// Runs the unit tests.
    Unit,
    /// Runs the integration tests.
    Integration,
    /// Runs the examples in the documentation.
    Doctests,
    /// Builds the library as its users do.
    Library,
    /// Shows that the simulator finds planted bugs.
    Mutants,
    /// Runs the tests of the dashboard.
    Ui,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passed.
    Passed,
    /// It passed, but these tests failed at first and passed when they ran alone.
    Unstable(String),
    /// It failed or could not be run, for this reason.
    Failed(String),
    /// It was not run, for this reason.
    Skipped(String),
}

impl Verdict {
    /// The verdict on a step whose tests passed, some of them only alone.
    pub(crate) fn of_unstable(tests: &[String]) -> Self {
        if tests.is_empty() {
            Self::Passed
        } else {
            Self::Unstable(tests.join(", "))
        }
    }
}

impl Step {
    /// All steps, the quick ones first.
    pub(crate) const ALL: [Self; 11] = [
        Self::Fmt,
        Self::Deny,
        Self::Advisories,
        Self::Clippy,
        Self::Docs,
        Self::Unit,
        Self::Integration,
        Self::Doctests,
        Self::Library,
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
            Self::Library => "library",
            Self::Mutants => "mutants",
            Self::Ui => "ui",
        }
    }

    /// A short description.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Fmt => "check formatting",
            Self::Deny => {
                "check licences and sources of dependencies (with cargo-deny, or a built-in check)"
            }
            Self::Advisories => {
                "check dependencies for known vulnerabilities (skipped without cargo-deny or network)"
            }
            Self::Clippy => "run clippy; warnings are errors",
            Self::Docs => "build the documentation; warnings are errors",
            Self::Unit => "run unit and property tests",
            Self::Integration => {
                "run integration tests, some of them on a real S3 server, several programs at a time"
            }
            Self::Doctests => "run the examples in the documentation",
            Self::Library => {
                "build the library with the features that users choose, and the README's program in a new project"
            }
            Self::Mutants => {
                "plant bugs and let the simulator find them (a few a day; all with `cargo xtask sim --mutants`)"
            }
            Self::Ui => {
                "test the dashboard in a browser, on a real S3 server (installs Chromium and two npm packages)"
            }
        }
    }

    /// The step of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// The arguments to cargo.
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
                "--features",
                SHIPPED,
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
            // With `--examples`, cargo selects the same features of dependencies as for clippy. Otherwise it checks
            // about twenty of them again.
            Self::Docs => &[
                "doc",
                "--workspace",
                "--features",
                SHIPPED,
                "--no-deps",
                "--lib",
                "--bins",
                "--examples",
            ],
            Self::Unit => &[
                "test",
                "--workspace",
                "--features",
                SHIPPED,
                "--no-fail-fast",
                "--lib",
                "--bins",
                "--examples",
            ],
            Self::Doctests => &[
                "test",
                "--workspace",
                "--features",
                SHIPPED,
                "--no-fail-fast",
                "--doc",
            ],
            // They have commands of their own.
            Self::Integration | Self::Library | Self::Mutants | Self::Ui => &[],
        }
    }

    /// Runs the step. It inherits standard output and standard error.
    pub(crate) fn run(self) -> Verdict {
        self.try_to_run()
            .unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")))
    }

    fn try_to_run(self) -> Result<Verdict> {
        let mut command = qo_testkit::cargo()?;
        command.args(self.arguments());
        match self {
            Self::Deny if !deny::is_installed()? => return deny::run_built_in(),
            Self::Advisories if !deny::is_installed()? => {
                let reason = "cargo-deny is not installed (`cargo install --locked cargo-deny`)";
                return Ok(Verdict::Skipped(reason.to_owned()));
            }
            Self::Advisories if !fetch_advisories()? => {
                return Ok(Verdict::Skipped(
                    "the advisory database cannot be downloaded".to_owned(),
                ));
            }
            Self::Docs => {
                command.env("RUSTDOCFLAGS", "-D warnings");
            }
            Self::Library => return library::step(),
            Self::Mutants => return mutants::step(),
            Self::Integration => return Ok(integration::run(None)?.0),
            Self::Ui => {
                let results = lanes::run(vec![ui::prepare()?]);
                return Ok(results.first().map_or(Verdict::Passed, ui::verdict));
            }
            Self::Unit => {
                // All test processes share one server.
                let server = SeaweedFs::shared_with_others()
                    .context("cannot start the S3 server for the tests")?;
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

/// The verdict on a command that ended with this status.
pub(crate) fn verdict(command: &Command, status: ExitStatus) -> Verdict {
    if status.success() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("`{}` ended with {status}", typed(command)))
    }
}

/// Downloads the advisory database. Returns whether that succeeded in time.
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
            .context("cannot stop a download that takes too long")?;
        fetch
            .wait()
            .context("cannot stop a download that takes too long")?;
    }
    Ok(ended.is_some_and(|status| status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_by_name() {
        for step in Step::ALL {
            assert_eq!(Step::from_name(step.name()), Some(step));
        }
        assert_eq!(Step::from_name("nothing"), None);
    }

    #[test]
    fn the_verdict_names_the_failed_command() {
        let mut command = qo_testkit::cargo().unwrap();
        command.arg("no-such-command").stderr(Stdio::null());
        let status = command.status().unwrap();
        let Verdict::Failed(reason) = verdict(&command, status) else {
            panic!("the command did not fail");
        };
        assert!(reason.contains("cargo no-such-command"), "{reason}");
    }
}
