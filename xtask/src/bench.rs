//! `cargo xtask bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::metadata::Metadata;
use crate::run::succeeds;
use crate::steps::SHIPPED;

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// The state machine with a million tasks.
    Core,
    /// Direct mode.
    Direct,
    /// Direct mode with many workers.
    Fleet,
    /// Broker mode.
    Broker,
    /// WASI jobs.
    Wasi,
    /// Cluster mode.
    Cluster,
}

impl Benchmark {
    /// The benchmark of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "core" => Some(Self::Core),
            "direct" => Some(Self::Direct),
            "fleet" => Some(Self::Fleet),
            "broker" => Some(Self::Broker),
            "wasi" => Some(Self::Wasi),
            "cluster" => Some(Self::Cluster),
            _ => None,
        }
    }

    /// The benchmark targets to run, each with its arguments.
    ///
    /// The scenario `http` of the broker needs the server, so it is a target of its own in the server's crate.
    fn targets(self, arguments: &[OsString]) -> Vec<(&'static str, Vec<OsString>)> {
        let all = arguments.to_vec();
        match self {
            Self::Core => vec![("queue_state", all)],
            Self::Direct => vec![("direct", all)],
            Self::Fleet => vec![("fleet", all)],
            Self::Wasi => vec![("wasi", all)],
            Self::Cluster => vec![("cluster", all)],
            Self::Broker => {
                let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
                let for_broker: Vec<_> = all.iter().filter(|word| *word != HTTP).cloned().collect();
                let for_server = all.iter().filter(|word| *word == HTTP || is_option(word));
                let for_server: Vec<_> = for_server.cloned().collect();
                let wants_help = all.iter().any(|word| word == "--help" || word == "-h");
                let selects_all = all.iter().all(is_option);
                let mut targets = Vec::new();
                if selects_all || !for_broker.iter().all(is_option) {
                    targets.push(("broker", for_broker));
                }
                if !wants_help && (selects_all || all.iter().any(|word| word == HTTP)) {
                    targets.push((HTTP, for_server));
                }
                targets
            }
        }
    }
}

/// The scenario of the broker that is a target of its own.
const HTTP: &str = "http";

/// Runs a benchmark.
pub(crate) fn run(benchmark: Benchmark, arguments: &[OsString]) -> Result<ExitCode> {
    let metadata = Metadata::of_workspace()?;
    for (target, arguments) in benchmark.targets(arguments) {
        let package = &metadata.package_with_target("bench", target)?.name;
        let mut command = qo_testkit::cargo()?;
        command.args(["bench", "--package", package, "--bench", target]);
        match benchmark {
            Benchmark::Wasi => command.args(["--features", SHIPPED]),
            // Without the WASI sandbox, which takes longest to build.
            Benchmark::Cluster => command.args(["--features", "qo-cli/cluster"]),
            _ => &mut command,
        };
        command.arg("--").args(arguments);
        if !succeeds(&mut command)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::words;

    #[test]
    fn the_scenarios_of_the_broker_run_in_their_targets() {
        let targets = |line: &str| {
            let targets = Benchmark::Broker.targets(&words(line)).into_iter();
            let texts = targets.map(|(target, words)| {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("{target}: {}", words.join(" "))
            });
            texts.collect::<Vec<_>>()
        };
        assert_eq!(targets(""), ["broker: ", "http: "]);
        assert_eq!(targets("--json"), ["broker: --json", "http: --json"]);
        assert_eq!(targets("http --json"), ["http: http --json"]);
        assert_eq!(targets("json full"), ["broker: json full"]);
        assert_eq!(targets("json http"), ["broker: json", "http: http"]);
        assert_eq!(targets("--help"), ["broker: --help"]);
    }
}
