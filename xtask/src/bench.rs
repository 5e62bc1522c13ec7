//! `cargo xtask bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::typed::typed;

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// The state machine at depth.
    Core,
    /// Direct mode.
    Direct,
    /// Broker mode.
    Broker,
}

impl Benchmark {
    /// Finds a benchmark by its name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "core" => Some(Self::Core),
            "direct" => Some(Self::Direct),
            "broker" => Some(Self::Broker),
            _ => None,
        }
    }

    /// Where it is: the package and its target.
    fn place(self) -> [&'static str; 2] {
        match self {
            Self::Core => ["qo-core", "queue_state"],
            Self::Direct => ["qo-engine", "direct"],
            Self::Broker => ["qo-engine", "broker"],
        }
    }
}

/// Runs a benchmark.
pub(crate) fn run(benchmark: Benchmark, arguments: &[OsString]) -> Result<ExitCode> {
    let [package, target] = benchmark.place();
    let mut command = qo_testkit::cargo()?;
    command
        .args(["bench", "-p", package, "--bench", target, "--"])
        .args(arguments);
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", typed(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
