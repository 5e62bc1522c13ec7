//! The help texts.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use crate::steps::Step;

/// What to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// All commands.
    Overview,
    /// `cargo xtask test`.
    Test,
    /// `cargo xtask bench`.
    Bench,
    /// `cargo xtask sim`.
    Sim,
    /// `cargo xtask fuzz`.
    Fuzz,
    /// `cargo xtask chaos`.
    Chaos,
}

const OVERVIEW: &str = "\
Set-up, tests and benchmarks of qo.

Usage: cargo xtask <command> [arguments]

Commands:
  test    install what the tests need and run everything that must hold
  bench   run the benchmarks
  man     write the manual pages of the qo command to target/man
  sim     run the simulator: many seeds, one, or the hunt for planted bugs
  fuzz    run the fuzzers
  chaos   run real processes on a real S3 server under faults
  help    explain a command: cargo xtask help test
";

const BENCH: &str = "\
Runs one benchmark, with all further arguments passed on to it.

Usage: cargo xtask bench <core|direct|broker> [arguments of the benchmark]

  core      what a command costs at a depth of a million tasks, and what a task costs in memory
  direct    direct mode: requests, dollars and tasks a second, beside their budgets
  broker    broker mode: the same for the JSON object and SlateDB, with a million waiting tasks and an idle broker

Examples:
  cargo xtask bench core
  cargo xtask bench core --quick
  cargo xtask bench direct --help
  cargo xtask bench direct one four --json
  cargo xtask bench broker full
";

const SIM: &str = "\
Runs real engines on a simulated store, in virtual time, under faults that a seed decides.

Usage: cargo xtask sim [--exact] [arguments of the simulator]

  --exact   builds a simulator whose runs on slate can be repeated to the byte, too; takes some minutes the first time

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
Runs libFuzzer on everything that reads bytes from outside. Installs cargo-fuzz into the target directory if it is not there.

Usage: cargo xtask fuzz [--seconds N] [TARGET...]

  --seconds N   for each target; 60, if not given

Examples:
  cargo xtask fuzz
  cargo xtask fuzz --seconds 180 task_record http_request
";

const CHAOS: &str = "\
Runs the real qo command on a real S3 server, behind a proxy that delays, refuses and loses, while processes are killed and stopped; then
checks what is stored against the promises.

Usage: cargo xtask chaos [arguments]

Examples:
  cargo xtask chaos --help
  cargo xtask chaos --minutes 5
  cargo xtask chaos --mode direct --seed 7
";

/// Prints the help on a topic.
#[expect(clippy::unnecessary_wraps, reason = "all commands are run alike")]
pub(crate) fn run(topic: Topic) -> Result<ExitCode> {
    print!("{}", text(topic));
    Ok(ExitCode::SUCCESS)
}

fn text(topic: Topic) -> String {
    match topic {
        Topic::Overview => OVERVIEW.to_owned(),
        Topic::Test => on_test(),
        Topic::Bench => BENCH.to_owned(),
        Topic::Sim => SIM.to_owned(),
        Topic::Fuzz => FUZZ.to_owned(),
        Topic::Chaos => CHAOS.to_owned(),
    }
}

fn on_test() -> String {
    let mut text = String::from(
        "\
Installs what the tests need (an S3 server, into the target directory) and runs every step, also after one that
failed. Fails if any step failed.

Usage: cargo xtask test [--only STEP[,STEP...]]

Steps:
",
    );
    for step in Step::ALL {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {:<12}{}", step.name(), step.about());
    }
    text.push_str(
        "
The tests share one SeaweedFS server. To give them another S3 server, set QO_TEST_S3_ENDPOINT (http://host:port),
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
    fn every_step_is_explained() {
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
