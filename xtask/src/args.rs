//! From the words on the command line to something that can be run, or one line that says what is wrong with them.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};

use crate::bench::Benchmark;
use crate::fuzz::{self, Plan};
use crate::help::Topic;
use crate::steps::Step;

/// What to run, with valid arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Explain.
    Help(Topic),
    /// Run these steps, in this order.
    Test(Vec<Step>),
    /// Run a benchmark with these arguments.
    Bench(Benchmark, Vec<OsString>),
    /// Write the manual pages.
    Man,
    /// Run the simulator with these arguments.
    Sim(Vec<OsString>),
    /// Run the fuzzers.
    Fuzz(Plan),
    /// Run real processes under faults, with these arguments.
    Chaos(Vec<OsString>),
}

/// Reads the command line, without the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation> {
    let mut arguments = arguments.into_iter();
    let Some(command) = arguments.next() else {
        return Ok(Invocation::Help(Topic::Overview));
    };
    let rest: Vec<OsString> = arguments.collect();
    // After `--` the words belong to somebody else.
    let asks_for_help = rest
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--help" || word == "-h");
    match command.to_str() {
        Some("help" | "--help" | "-h") => help(&rest).map(Invocation::Help),
        Some("test") if asks_for_help => Ok(Invocation::Help(Topic::Test)),
        Some("test") => test(&rest).map(Invocation::Test),
        Some("bench") => bench(rest),
        Some("man") if asks_for_help => Ok(Invocation::Help(Topic::Overview)),
        Some("man") if rest.is_empty() => Ok(Invocation::Man),
        Some("man") => bail!("`man` takes no arguments"),
        // The simulator explains itself.
        Some("sim") => Ok(Invocation::Sim(rest)),
        Some("fuzz") if asks_for_help => Ok(Invocation::Help(Topic::Fuzz)),
        Some("fuzz") => fuzz::plan(&rest).map(Invocation::Fuzz),
        // And so does the chaos.
        Some("chaos") => Ok(Invocation::Chaos(rest)),
        _ => bail!(
            "there is no command `{}`; `cargo xtask help` lists them",
            command.display()
        ),
    }
}

fn help(words: &[OsString]) -> Result<Topic> {
    match words {
        [] => Ok(Topic::Overview),
        [word] if word == "test" => Ok(Topic::Test),
        [word] if word == "bench" => Ok(Topic::Bench),
        [word] if word == "sim" => Ok(Topic::Sim),
        [word] if word == "fuzz" => Ok(Topic::Fuzz),
        [word] if word == "chaos" => Ok(Topic::Chaos),
        [word] if word == "help" || word == "man" => Ok(Topic::Overview),
        _ => bail!("there is no help for {words:?}; `cargo xtask help` lists the commands"),
    }
}

/// The first word names the benchmark; the rest is the benchmark's own business.
fn bench(mut words: Vec<OsString>) -> Result<Invocation> {
    let Some(name) = words.first().and_then(|word| word.to_str()) else {
        bail!("which benchmark? `cargo xtask help bench` lists them");
    };
    if name == "--help" || name == "-h" {
        return Ok(Invocation::Help(Topic::Bench));
    }
    let benchmark = Benchmark::from_name(name).with_context(|| {
        format!("there is no benchmark {name:?}; there are core, direct and broker")
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
            None => bail!("`test` takes no {word:?}; see `cargo xtask help test`"),
        };
        let names =
            names.context("`--only` needs the names of steps, such as `--only clippy,unit`")?;
        for name in names.split(',') {
            only.push(Step::from_name(name).with_context(|| {
                let names = Step::ALL.map(Step::name).join(", ");
                format!("there is no step {name:?}; there are {names}")
            })?);
        }
    }
    // Cheap steps come first, however they were asked for.
    Ok(Step::ALL
        .into_iter()
        .filter(|step| only.is_empty() || only.contains(step))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Invocation> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn no_filter_means_every_step() {
        assert_eq!(
            parsed("test").unwrap(),
            Invocation::Test(Step::ALL.to_vec())
        );
    }

    #[test]
    fn filters_add_up_and_keep_the_order_of_the_steps() {
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
    fn manual_pages_need_no_arguments() {
        assert_eq!(parsed("man").unwrap(), Invocation::Man);
        assert!(parsed("man pages").is_err());
    }

    #[test]
    fn help_is_found_in_every_usual_way() {
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
    }

    #[test]
    fn arguments_of_benchmarks_are_passed_on() {
        let expected = ["one", "--help"].map(OsString::from).to_vec();
        assert_eq!(
            parsed("bench direct one --help").unwrap(),
            Invocation::Bench(Benchmark::Direct, expected)
        );
    }

    #[test]
    fn arguments_of_the_simulator_are_passed_on() {
        let expected = ["--seed", "7", "--help"].map(OsString::from).to_vec();
        assert_eq!(
            parsed("sim --seed 7 --help").unwrap(),
            Invocation::Sim(expected)
        );
        assert_eq!(parsed("help sim").unwrap(), Invocation::Help(Topic::Sim));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, named) in [
            ("tset", "tset"),
            ("test unit", "unit"),
            ("test --only", "--only"),
            ("test --onlyunit", "--only"),
            ("test --only units", "integration"),
            ("test --only=", "integration"),
            ("help tset", "tset"),
            ("bench", "which"),
            ("bench brokre", "brokre"),
        ] {
            let message = parsed(line).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
