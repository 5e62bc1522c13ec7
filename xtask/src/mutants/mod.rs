//! Planted bugs (mutants): `cargo xtask sim --mutants`, and the step `mutants` of `cargo xtask test`.
//!
//! Shipping code contains none. They are planted in a copy of the tree, each behind a switch, so that one build of the simulator serves
//! all of them; then the simulator must find each one.

mod patch;
mod seeds;
mod tree;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};

use self::patch::Patch;
use self::seeds::KnownSeeds;
use crate::run::exit_code;
use crate::steps::{SHIPPED, Verdict, verdict};
use crate::typed::typed;

/// The simulator of the copy.
const SIMULATOR: &str = "qo-sim-mutants";
/// What builds it. The selection gives its dependencies the features that they have in the ordinary tests, so that they are built once.
const BUILD: [&str; 7] = [
    "test",
    "--quiet",
    "--workspace",
    "--features",
    SHIPPED,
    "--test",
    "mutants",
];
/// The number of days after which the test step has hunted for every bug.
const DAYS: usize = 5;

/// A bug to search for on an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunt {
    engine: String,
    mutant: String,
}

/// What a hunt found: the seed, and the promise that was broken.
type Catch = Option<(u64, String)>;

/// Whether these arguments to `cargo xtask sim` need planted bugs.
pub(crate) fn concerns(arguments: &[OsString]) -> bool {
    let has = |names: &[&str]| {
        let mut words = arguments.iter().filter_map(|word| word.to_str());
        words.any(|word| names.contains(&word.split('=').next().unwrap_or(word)))
    };
    has(&["--mutants", "--mutant"]) && !has(&["--help", "-h"])
}

/// Runs `cargo xtask sim` with planted bugs.
pub(crate) fn sim(arguments: &[OsString]) -> Result<ExitCode> {
    if arguments.iter().any(|word| word == "--exact") {
        bail!("`--exact` cannot be combined with planted bugs");
    }
    let patches = tree::patches(&root())?;
    let option = |name: &str| option(arguments, name);
    let mutant = option("--mutant");
    if let Some(name) = &mutant
        && !patches.iter().any(|patch| patch.name == *name)
    {
        let names: Vec<_> = patches.iter().map(|patch| patch.name.as_str()).collect();
        bail!(
            "there is no planted bug {name:?}; there are {}",
            names.join(", ")
        );
    }
    if option("--seed").is_some() {
        build(&patches)?;
        let mut simulator = Command::new(simulator()?);
        let status = simulator.args(arguments).status();
        let status = status.context("cannot run the simulator")?;
        return Ok(exit_code(status.success()));
    }
    let engine = option("--engine");
    if let Some(word) = unknown(arguments) {
        bail!("`{word}` cannot be combined with the hunt for planted bugs");
    }
    let mut hunts = hunts(&patches);
    hunts.retain(|hunt| {
        let is_chosen = |choice: &Option<String>, name: &str| {
            choice.as_ref().is_none_or(|choice| choice == name)
        };
        is_chosen(&mutant, &hunt.mutant) && is_chosen(&engine, &hunt.engine)
    });
    if hunts.is_empty() {
        bail!("no planted bug is hunted on this engine");
    }
    build(&patches)?;
    let mut known = KnownSeeds::read(&root())?;
    let caught = run(&hunts, &known)?;
    let mut is_changed = false;
    for (hunt, catch) in hunts.iter().zip(&caught) {
        if let Some((seed, _)) = catch {
            is_changed |= known.set(&hunt.engine, &hunt.mutant, *seed);
        }
    }
    if is_changed {
        known.write(&root())?;
        println!("the seeds in {} are up to date now", seeds::FILE);
    }
    let missed = missed(&hunts, &caught);
    if !missed.is_empty() {
        println!("not found: {}", missed.join(", "));
    }
    Ok(exit_code(missed.is_empty()))
}

/// Runs the step `mutants`: every patch applies, the copy can be built, its own tests pass, and the bugs of the day are found.
pub(crate) fn step() -> Result<Verdict> {
    let patches = tree::patches(&root())?;
    build(&patches)?;
    let mut tests = cargo()?;
    tests.args(BUILD);
    println!("target/mutants/tree$ {}", typed(&tests));
    let status = tests.status().context("cannot run cargo")?;
    if !status.success() {
        return Ok(verdict(&tests, status));
    }
    let hunts = of_day(&hunts(&patches), today());
    let known = KnownSeeds::read(&root())?;
    let caught = run(&hunts, &known)?;
    let missed = missed(&hunts, &caught);
    if !missed.is_empty() {
        let missed = missed.join(", ");
        return Ok(Verdict::Failed(format!(
            "planted bugs were not found: {missed}"
        )));
    }
    let is_new = |(hunt, catch): (&Hunt, &Catch)| {
        let seed = catch.as_ref().map(|(seed, _)| *seed);
        seed != known.get(&hunt.engine, &hunt.mutant)
    };
    if hunts.iter().zip(&caught).any(is_new) {
        println!(
            "other seeds than the known ones found some; `cargo xtask sim --mutants` writes them down"
        );
    }
    Ok(Verdict::Passed)
}

/// Every bug on each of its engines.
fn hunts(patches: &[Patch]) -> Vec<Hunt> {
    let hunts = patches.iter().flat_map(|patch| {
        patch.engines.iter().map(|engine| Hunt {
            engine: engine.clone(),
            mutant: patch.name.clone(),
        })
    });
    let mut hunts: Vec<_> = hunts.collect();
    hunts.sort_by(|one, other| (&one.engine, &one.mutant).cmp(&(&other.engine, &other.mutant)));
    hunts
}

/// The hunts of a day: at least one for each engine, and each of them on one of a few days.
fn of_day(hunts: &[Hunt], day: usize) -> Vec<Hunt> {
    let mut chosen = Vec::new();
    for group in hunts.chunk_by(|one, other| one.engine == other.engine) {
        let due = group.iter().skip(day % DAYS).step_by(DAYS);
        let before = chosen.len();
        chosen.extend(due.cloned());
        if chosen.len() == before {
            chosen.extend(group.get(day % group.len()).cloned());
        }
    }
    chosen
}

/// The number of the day, in UTC.
#[expect(clippy::disallowed_methods, reason = "the date chooses what is run")]
fn today() -> usize {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    usize::try_from(seconds / (24 * 60 * 60)).unwrap_or_default()
}

/// Plants the bugs and builds the simulator with them.
fn build(patches: &[Patch]) -> Result<()> {
    tree::update(&root(), &copy(), patches)?;
    let mut command = cargo()?;
    command.args(BUILD).arg("--no-run");
    println!("target/mutants/tree$ {}", typed(&command));
    if !command.status().context("cannot run cargo")?.success() {
        bail!(
            "the tree with planted bugs, {}, cannot be built",
            copy().display()
        );
    }
    Ok(())
}

/// Runs the hunts on all cores, and prints the table of what they found.
fn run(hunts: &[Hunt], known: &KnownSeeds) -> Result<Vec<Catch>> {
    println!("| planted bug | engine | seed | found as |\n| --- | --- | --- | --- |");
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Catch>)>> = Mutex::default();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(hunt) = hunts.get(number) else {
                        return;
                    };
                    let result = hunt.run(known);
                    if let Ok(catch) = &result {
                        println!("{}", row(hunt, catch));
                    }
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

impl Hunt {
    fn run(&self, known: &KnownSeeds) -> Result<Catch> {
        let mut command = Command::new(simulator()?);
        command.args(["--engine", &self.engine, "--mutant", &self.mutant]);
        if let Some(seed) = known.get(&self.engine, &self.mutant) {
            command.arg("--known").arg(seed.to_string());
        }
        let output = command
            // Some bugs make nodes panic, and a backtrace of each would hide the table.
            .env("RUST_BACKTRACE", "0")
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run the simulator of the copy")?;
        let said = String::from_utf8_lossy(&output.stdout);
        match (output.status.code(), read(&said)) {
            (Some(0), Some(catch)) => Ok(Some(catch)),
            (Some(1), _) => Ok(None),
            _ => bail!(
                "the hunt for {} on {} ended with {}: {said}",
                self.mutant,
                self.engine,
                output.status
            ),
        }
    }
}

/// Reads what the simulator prints: the seed, and the promise that was broken.
fn read(line: &str) -> Catch {
    let (seed, promise) = line.trim().split_once(' ')?;
    Some((seed.parse().ok()?, promise.to_owned()))
}

fn row(hunt: &Hunt, catch: &Catch) -> String {
    let (seed, promise) = match catch {
        Some((seed, promise)) => (seed.to_string(), promise.as_str()),
        None => ("none".to_owned(), "NOT FOUND"),
    };
    format!("| {} | {} | {seed} | {promise} |", hunt.mutant, hunt.engine)
}

fn missed(hunts: &[Hunt], caught: &[Catch]) -> Vec<String> {
    let pairs = hunts.iter().zip(caught);
    pairs
        .filter(|(_, catch)| catch.is_none())
        .map(|(hunt, _)| format!("{} on {}", hunt.mutant, hunt.engine))
        .collect()
}

/// The first word that a hunt does not understand.
fn unknown(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match word.as_ref() {
            "--mutants" => {}
            "--mutant" | "--engine" => {
                words.next();
            }
            other if other.starts_with("--mutant=") || other.starts_with("--engine=") => {}
            other => return Some(other.to_owned()),
        }
    }
    None
}

/// The value of an option, in either form.
fn option(arguments: &[OsString], name: &str) -> Option<String> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if word == name {
            return words.next().map(str::to_owned);
        }
        if let Some(value) = word
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
        {
            return Some(value.to_owned());
        }
    }
    None
}

/// Cargo in the copy, with the target folder of the tree.
fn cargo() -> Result<Command> {
    let mut command = qo_testkit::cargo()?;
    command
        .current_dir(copy())
        .env("CARGO_TARGET_DIR", target()?);
    Ok(command)
}

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// The program that hunts.
fn simulator() -> Result<PathBuf> {
    Ok(target()?.join("debug").join(SIMULATOR))
}

fn copy() -> PathBuf {
    root().join("target/mutants/tree")
}

fn target() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR").filter(|target| !target.is_empty()) {
        Some(target) => std::path::absolute(target).context("CARGO_TARGET_DIR is no path"),
        None => Ok(root().join("target")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::words;

    #[test]
    fn arguments_about_planted_bugs_are_recognised() {
        for line in [
            "--mutants",
            "--engine json --mutant no-sweeper",
            "--mutant=no-sweeper",
        ] {
            assert!(concerns(&words(line)), "{line}");
        }
        for line in ["--seeds 7", "--mutants --help"] {
            assert!(!concerns(&words(line)), "{line}");
        }
        assert_eq!(unknown(&words("--mutants --engine=json")), None);
        assert_eq!(unknown(&words("--mutant a --engine json")), None);
        let wrong = unknown(&words("--mutants --seeds 7"));
        assert_eq!(wrong.as_deref(), Some("--seeds"));
        let line = words("--engine=json --mutant no-sweeper");
        assert_eq!(option(&line, "--engine").as_deref(), Some("json"));
        assert_eq!(option(&line, "--mutant").as_deref(), Some("no-sweeper"));
        assert_eq!(option(&line, "--seed"), None);
    }

    #[test]
    fn a_few_days_cover_every_bug_and_each_day_every_engine() {
        let all = hunts(&tree::patches(&root()).unwrap());
        let engines = |hunts: &[Hunt]| {
            let mut engines: Vec<_> = hunts.iter().map(|hunt| hunt.engine.clone()).collect();
            engines.dedup();
            engines
        };
        for start in [0, 3, 20_000] {
            let mut seen = Vec::new();
            for day in start..start + DAYS {
                let chosen = of_day(&all, day);
                assert_eq!(chosen, of_day(&all, day));
                assert_eq!(engines(&chosen), ["cluster", "direct", "json", "slate"]);
                assert!(chosen.len() <= all.len().div_ceil(DAYS) + 4);
                seen.extend(chosen);
            }
            assert!(all.iter().all(|hunt| seen.contains(hunt)));
        }
    }

    #[test]
    fn what_the_simulator_prints_is_read() {
        let caught = read("12 promise 3, one current attempt\n");
        assert_eq!(
            caught,
            Some((12, "promise 3, one current attempt".to_owned()))
        );
        assert_eq!(read(""), None);
    }
}
