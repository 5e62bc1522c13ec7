//! Parses the command line.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};

use crate::bench::Benchmark;
use crate::dist;
use crate::fuzz::{self, Plan};
use crate::help::Topic;
use crate::steps::Step;

/// A command with valid arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Print the help on a topic.
    Help(Topic),
    /// Run these steps, in this order.
    Test(Vec<Step>),
    /// Run a benchmark with these arguments.
    Bench(Benchmark, Vec<OsString>),
    /// Build the packages.
    Dist(dist::Plan),
    /// Write the manual pages.
    Man,
    /// Run the simulator with these arguments.
    Sim(Vec<OsString>),
    /// Run the fuzzers.
    Fuzz(Plan),
    /// Run the chaos test with these arguments.
    Chaos(Vec<OsString>),
}

/// Parses the arguments, without the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation> {
    let mut arguments = arguments.into_iter();
    let Some(command) = arguments.next() else {
        return Ok(Invocation::Help(Topic::Overview));
    };
    let rest: Vec<OsString> = arguments.collect();
    // Arguments after `--` are passed on.
    let wants_help = rest
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--help" || word == "-h");
    match command.to_str() {
        Some("help" | "--help" | "-h") => help(&rest).map(Invocation::Help),
        Some("test") if wants_help => Ok(Invocation::Help(Topic::Test)),
        Some("test") => test(&rest).map(Invocation::Test),
        Some("bench") => bench(rest),
        Some("dist") if wants_help => Ok(Invocation::Help(Topic::Dist)),
        Some("dist") => dist::plan(&rest).map(Invocation::Dist),
        Some("man") if wants_help => Ok(Invocation::Help(Topic::Overview)),
        Some("man") if rest.is_empty() => Ok(Invocation::Man),
        Some("man") => bail!("`man` takes no arguments"),
        // The simulator and the chaos test have help texts of their own.
        Some("sim") => Ok(Invocation::Sim(rest)),
        Some("fuzz") if wants_help => Ok(Invocation::Help(Topic::Fuzz)),
        Some("fuzz") => fuzz::plan(&rest).map(Invocation::Fuzz),
        Some("chaos") => Ok(Invocation::Chaos(rest)),
        _ => bail!(
            "unknown command `{}`; `cargo xtask help` lists the commands",
            command.display()
        ),
    }
}

/// The words of a command line, for tests.
#[cfg(test)]
pub(crate) fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn help(words: &[OsString]) -> Result<Topic> {
    match words {
        [] => Ok(Topic::Overview),
        [word] if word == "test" => Ok(Topic::Test),
        [word] if word == "bench" => Ok(Topic::Bench),
        [word] if word == "dist" => Ok(Topic::Dist),
        [word] if word == "sim" => Ok(Topic::Sim),
        [word] if word == "fuzz" => Ok(Topic::Fuzz),
        [word] if word == "chaos" => Ok(Topic::Chaos),
        [word] if word == "help" || word == "man" => Ok(Topic::Overview),
        _ => bail!("no help for {words:?}; `cargo xtask help` lists the commands"),
    }
}

/// The first word names the benchmark. The others are passed on to it.
fn bench(mut words: Vec<OsString>) -> Result<Invocation> {
    let Some(name) = words.first().and_then(|word| word.to_str()) else {
        bail!("`bench` needs the name of a benchmark; `cargo xtask help bench` lists them");
    };
    if name == "--help" || name == "-h" {
        return Ok(Invocation::Help(Topic::Bench));
    }
    let benchmark = Benchmark::from_name(name).with_context(|| {
        format!(
            "unknown benchmark {name:?}; the benchmarks are core, direct, fleet, broker, wasi and cluster"
        )
    })?;
    words.remove(0);
    Ok(Invocation::Bench(benchmark, words))
}

fn test(words: &[OsString]) -> Result<Vec<Step>> {
    let mut only: Vec<Step> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word
            .to_str()
            .with_context(|| format!("`{}` is not UTF-8", word.display()))?;
        let names = match word.strip_prefix("--only") {
            Some("") => words.next().and_then(|names| names.to_str()),
            Some(rest) => rest.strip_prefix('='),
            None => bail!("unexpected argument {word:?}; see `cargo xtask help test`"),
        };
        let names = names.context("`--only` needs names of steps, such as `--only clippy,unit`")?;
        for name in names.split(',') {
            only.push(Step::from_name(name).with_context(|| {
                let names = Step::ALL.map(Step::name).join(", ");
                format!("unknown step {name:?}; the steps are {names}")
            })?);
        }
    }
    // The order of the steps is fixed, because the quick ones should come first.
    Ok(Step::ALL
        .into_iter()
        .filter(|step| only.is_empty() || only.contains(step))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation> {
        parse(words(line))
    }

    #[test]
    fn all_steps_run_by_default() {
        assert_eq!(
            parsed("test").unwrap(),
            Invocation::Test(Step::ALL.to_vec())
        );
    }

    #[test]
    fn selected_steps_run_once_and_in_the_usual_order() {
        for line in [
            "test --only unit,clippy",
            "test --only=unit --only clippy",
            "test --only clippy,unit,clippy",
        ] {
            assert_eq!(
                parsed(line).unwrap(),
                Invocation::Test(vec![Step::Clippy, Step::Unit]),
                "{line}"
            );
        }
    }

    #[test]
    fn man_takes_no_arguments() {
        assert_eq!(parsed("man").unwrap(), Invocation::Man);
        assert!(parsed("man pages").is_err());
    }

    #[test]
    fn every_spelling_of_help_works() {
        for line in [
            "",
            "help",
            "--help",
            "-h",
            "help help",
            "help man",
            "man -h",
        ] {
            assert_eq!(
                parsed(line).unwrap(),
                Invocation::Help(Topic::Overview),
                "{line}"
            );
        }
        for line in ["help test", "test --help", "test --only unit -h"] {
            assert_eq!(
                parsed(line).unwrap(),
                Invocation::Help(Topic::Test),
                "{line}"
            );
        }
        assert_eq!(
            parsed("bench --help").unwrap(),
            Invocation::Help(Topic::Bench)
        );
        assert_eq!(
            parsed("dist --check -h").unwrap(),
            Invocation::Help(Topic::Dist)
        );
    }

    #[test]
    fn arguments_are_passed_on_to_benchmarks() {
        let expected = ["one", "--help"].map(OsString::from).to_vec();
        assert_eq!(
            parsed("bench direct one --help").unwrap(),
            Invocation::Bench(Benchmark::Direct, expected)
        );
    }

    #[test]
    fn arguments_are_passed_on_to_the_simulator() {
        let expected = ["--seed", "7", "--help"].map(OsString::from).to_vec();
        assert_eq!(
            parsed("sim --seed 7 --help").unwrap(),
            Invocation::Sim(expected)
        );
        assert_eq!(parsed("help sim").unwrap(), Invocation::Help(Topic::Sim));
    }

    #[test]
    fn errors_name_the_wrong_argument() {
        for (line, named) in [
            ("tset", "tset"),
            ("test unit", "unit"),
            ("test --only", "--only"),
            ("test --onlyunit", "--only"),
            ("test --only units", "integration"),
            ("test --only=", "integration"),
            ("help tset", "tset"),
            ("dist --onyl deb", "--onyl"),
            ("bench", "name of a benchmark"),
            ("bench brokre", "brokre"),
        ] {
            let message = parsed(line).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
