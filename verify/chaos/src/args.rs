//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// The help text.
pub const HELP: &str = "\
Runs real processes of qo on SeaweedFS under faults, and checks the promises afterwards.

Usage: cargo xtask chaos [--minutes N | --seconds N] [--seed S] [--mode direct|json|slate]... [--keep]

  --minutes N, --seconds N   the duration of the faults in each mode (default: 60 seconds)
  --seed S                   decides the faults (default: random). Real processes have their own timing, so a seed repeats the faults and
                             not the run
  --mode MODE                direct, json or slate, which has two brokers (default: all three)
  --keep                     keep the logs of a run without breaches as well

The logs of a run with breaches are kept below target/chaos/.
";

/// The mode of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Workers and clients on the bucket, in direct mode.
    Direct,
    /// Workers and clients on one JSON object.
    Json,
    /// Brokers on SlateDB that serve workers and clients.
    Slate,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Json, Self::Slate];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Json => "json",
            Self::Slate => "slate",
        }
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The mode of the queue.
    pub mode: Mode,
    /// Decides the faults.
    pub seed: u64,
    /// The duration of the faults.
    pub trouble: Duration,
    /// Whether to keep the logs of a run without breaches.
    pub keep: bool,
    /// The `qo` command.
    pub program: PathBuf,
}

/// The parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Print the help.
    Help,
    /// Run these plans, one after the other.
    Run(Vec<Plan>),
}

/// The `qo` command that the environment names, or else the one beside this program.
pub fn program_beside() -> Result<PathBuf> {
    let named = qo_testkit::program_under_test("");
    if !named.as_os_str().is_empty() {
        return Ok(named);
    }
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let mut folders = own.ancestors().skip(1);
    folders
        .find_map(|folder| {
            let program = folder.join("qo");
            program.is_file().then_some(program)
        })
        .context("the qo command is not built: run `cargo build -p qo-cli`, or `cargo xtask chaos`, which does it")
}

/// Reads the command line, without the program's name.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Invocation> {
    let mut seconds = 60;
    let mut seed = None;
    let mut modes = Vec::new();
    let mut keep = false;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .with_context(|| format!("`{word}` needs a value"))
        };
        match word.as_str() {
            "--help" | "-h" => return Ok(Invocation::Help),
            "--minutes" => seconds = number(&value()?)?.saturating_mul(60),
            "--seconds" => seconds = number(&value()?)?,
            "--seed" => seed = Some(number(&value()?)?),
            "--keep" => keep = true,
            "--mode" => {
                let name = value()?;
                let mode = Mode::ALL.into_iter().find(|mode| mode.name() == name);
                modes.push(mode.with_context(|| {
                    format!("there is no mode {name:?}; there are direct, json and slate")
                })?);
            }
            _ => bail!("there is no {word:?}; `--help` explains what there is"),
        }
    }
    if !(5..=86_400).contains(&seconds) {
        bail!("the trouble lasts from 5 seconds to a day");
    }
    if modes.is_empty() {
        modes = Mode::ALL.to_vec();
    }
    let program = program_beside()?;
    let seed =
        seed.unwrap_or_else(|| qo_store::runtime::TokioRuntime::shared().random() % 1_000_000);
    let plans = modes.into_iter().map(|mode| Plan {
        mode,
        seed,
        trouble: Duration::from_secs(seconds),
        keep,
        program: program.clone(),
    });
    Ok(Invocation::Run(plans.collect()))
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .with_context(|| format!("{text:?} is not a number"))
}
