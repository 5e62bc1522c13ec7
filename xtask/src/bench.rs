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

    /// What to run for these arguments: each package with its target, and the arguments that it is given.
    ///
    /// The scenario `http` of the broker needs the server, and so is a benchmark of that crate.
    fn runs(self, arguments: &[OsString]) -> Vec<([&'static str; 2], Vec<OsString>)> {
        let all = arguments.to_vec();
        match self {
            Self::Core => vec![(["qo-core", "queue_state"], all)],
            Self::Direct => vec![(["qo-direct", "direct"], all)],
            Self::Broker => {
                let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
                let of_engine: Vec<_> = all.iter().filter(|word| *word != HTTP).cloned().collect();
                let of_server = all.iter().filter(|word| *word == HTTP || is_option(word));
                let of_server: Vec<_> = of_server.cloned().collect();
                let asks_for_help = all.iter().any(|word| word == "--help" || word == "-h");
                let names_none = all.iter().all(is_option);
                let mut runs = Vec::new();
                if names_none || !of_engine.iter().all(is_option) {
                    runs.push((["qo-broker", "broker"], of_engine));
                }
                if !asks_for_help && (names_none || all.iter().any(|word| word == HTTP)) {
                    runs.push((["qo-server", "http"], of_server));
                }
                runs
            }
        }
    }
}

/// The scenario of the broker that another crate brings.
const HTTP: &str = "http";

/// Runs a benchmark.
pub(crate) fn run(benchmark: Benchmark, arguments: &[OsString]) -> Result<ExitCode> {
    for ([package, target], arguments) in benchmark.runs(arguments) {
        let mut command = qo_testkit::cargo()?;
        command
            .args(["bench", "-p", package, "--bench", target, "--"])
            .args(arguments);
        let status = command
            .status()
            .with_context(|| format!("cannot run `{}`", typed(&command)))?;
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_of_the_broker_are_found_where_they_are() {
        let runs = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            let runs = Benchmark::Broker.runs(&words).into_iter();
            let texts = runs.map(|([_, target], words)| {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("{target}: {}", words.join(" "))
            });
            texts.collect::<Vec<_>>()
        };
        assert_eq!(runs(""), ["broker: ", "http: "]);
        assert_eq!(runs("--json"), ["broker: --json", "http: --json"]);
        assert_eq!(runs("http --json"), ["http: http --json"]);
        assert_eq!(runs("json full"), ["broker: json full"]);
        assert_eq!(runs("json http"), ["broker: json", "http: http"]);
        assert_eq!(runs("--help"), ["broker: --help"]);
    }
}
