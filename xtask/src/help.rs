//! The help texts.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use crate::steps::Step;

/// A topic of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// All commands.
    Overview,
    /// `cargo xtask test`.
    Test,
    /// `cargo xtask bench`.
    Bench,
    /// `cargo xtask dist`.
    Dist,
    /// `cargo xtask sim`.
    Sim,
    /// `cargo xtask fuzz`.
    Fuzz,
    /// `cargo xtask chaos`.
    Chaos,
}

const OVERVIEW: &str = "\
Development tasks of qo.

Usage: cargo xtask <command> [arguments]

Commands:
  test    run all checks and tests; installs what they need
  bench   run a benchmark
  dist    build the packages: tar.gz, Debian, Python wheel, npm
  man     write the manual pages of qo to target/man
  sim     run the simulator
  fuzz    run the fuzzers
  chaos   run qo processes on a real S3 server under faults
  help    show the help of a command, e.g. cargo xtask help test
";

const BENCH: &str = "\
Runs a benchmark. Further arguments are passed on to it.

Usage: cargo xtask bench <core|direct|fleet|broker|wasi|cluster> [arguments of the benchmark]

  core      time and memory per task of the state machine, with a million tasks
  direct    direct mode: requests, cost and tasks per second, compared with their budgets
  fleet     direct mode with 1 to 1,000 workers in virtual time: requests and cost per task and per idle worker
  broker    broker mode: the same for ?engine=json and ?engine=slate, with a million pending tasks and when idle
  wasi      WASI jobs: what a job costs beyond the queue's own work, beside a process for each task
  cluster   three nodes as processes: tasks a second, latency, loss of the leader, restart, a node that joins

Examples:
  cargo xtask bench core
  cargo xtask bench core --quick
  cargo xtask bench direct --help
  cargo xtask bench direct one four --json
  cargo xtask bench fleet 1 10 100
  cargo xtask bench broker full
";

const DIST: &str = "\
Builds qo with the profile `dist` and packages it. The packages are written to target/dist.

Usage: cargo xtask dist [--check] [--only PACKAGE[,PACKAGE...]] [--program PATH]

  --check     install each package into a temporary directory and run it
  --only      build only these packages: tar, deb, wheel, npm
  --program   package this program instead of building one

The build needs tar and gzip, dpkg-deb for the Debian package, python3 for the wheel, and npm for the npm package. It
works without a network once cargo has downloaded the dependencies. packaging/README.md describes the packages.

Examples:
  cargo xtask dist
  cargo xtask dist --check
  cargo xtask dist --only deb,wheel --check
  cargo xtask dist --program target/release/qo --check
";

const SIM: &str = "\
Runs the engines on a simulated store in virtual time. A seed determines the faults.

Usage: cargo xtask sim [--exact] [arguments of the simulator]

  --exact   build a simulator whose runs on slate are deterministic to the byte, too; the first build takes minutes

Examples:
  cargo xtask sim --help
  cargo xtask sim --seeds 1000
  cargo xtask sim --hours 1 --from 10000 --json
  cargo xtask sim --engine slate --seeds 200
  cargo xtask sim --seed 17 --trace
  cargo xtask sim --exact --engine slate --seed 28 --trace
  cargo xtask sim --mutants
";

const FUZZ: &str = "\
Runs libFuzzer on all code that parses untrusted bytes. Installs cargo-fuzz into the target directory if it is missing.

Usage: cargo xtask fuzz [--seconds N] [TARGET...]

  --seconds N   time for each target (default: 60)

Examples:
  cargo xtask fuzz
  cargo xtask fuzz --seconds 180 task_record http_request
";

const CHAOS: &str = "\
Runs the qo command on a real S3 server behind a proxy that delays, refuses and drops requests, while processes are
killed and suspended. Then checks the stored tasks against qo's promises.

Usage: cargo xtask chaos [arguments]

Examples:
  cargo xtask chaos --help
  cargo xtask chaos --minutes 5
  cargo xtask chaos --mode direct --seed 7
";

/// Prints the help on a topic.
#[expect(
    clippy::unnecessary_wraps,
    reason = "all commands have the same signature"
)]
pub(crate) fn run(topic: Topic) -> Result<ExitCode> {
    print!("{}", text(topic));
    Ok(ExitCode::SUCCESS)
}

fn text(topic: Topic) -> String {
    match topic {
        Topic::Overview => OVERVIEW.to_owned(),
        Topic::Test => test_help(),
        Topic::Bench => BENCH.to_owned(),
        Topic::Dist => DIST.to_owned(),
        Topic::Sim => SIM.to_owned(),
        Topic::Fuzz => FUZZ.to_owned(),
        Topic::Chaos => CHAOS.to_owned(),
    }
}

fn test_help() -> String {
    let mut text = String::from(
        "\
Runs all checks and tests. A failed step does not stop the others. Installs an S3 server for the tests into the target
directory.

Usage: cargo xtask test [--only STEP[,STEP...]]

Steps:
",
    );
    for step in Step::ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<12}{}", step.name(), step.about());
    }
    text.push_str(
        "
The tests share one SeaweedFS server. To use another S3 server, set QO_TEST_S3_ENDPOINT (http://host:port),
QO_TEST_S3_ACCESS_KEY and QO_TEST_S3_SECRET_KEY.

Examples:
  cargo xtask test
  cargo xtask test --only clippy,unit
",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_step() {
        let text = text(Topic::Test);
        for step in Step::ALL {
            assert!(
                text.contains(&format!("\n  {} ", step.name())),
                "{}",
                step.name()
            );
        }
    }
}
