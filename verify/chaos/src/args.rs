//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// What is explained to whoever asks.
pub const HELP: &str = "\
Runs real processes of qo on SeaweedFS under faults, and checks the promises afterwards.

Usage: cargo xtask chaos [--minutes N | --seconds N] [--seed S] [--mode direct|json|slate]... [--keep]

  --minutes N, --seconds N   how long the trouble lasts, in each mode; 60 seconds, if not given
  --seed S                   what fails, how often, and who is killed when; a new one, if not given. Real processes take their own time,
                             so that a seed repeats the trouble and not the run
  --mode MODE                direct, json, slate (two brokers); all three, if not given
  --keep                     keep the logs of a run in which nothing was found, too

The logs of a run in which something was found are kept below target/chaos/, and named at the end.
";

/// How the queue is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Workers and clients on the bucket.
    Direct,
    /// The same on one JSON object.
    Json,
    /// Brokers on SlateDB; workers and clients ask them.
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
    /// How the queue is run.
    pub mode: Mode,
    /// Decides the trouble.
    pub seed: u64,
    /// How long it lasts.
    pub trouble: Duration,
    /// Whether logs are kept although nothing was found.
    pub keep: bool,
    /// The `qo` command.
    pub program: PathBuf,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Explain.
    Help,
    /// Run these, one after the other.
    Run(Vec<Plan>),
}

/// The command that stands beside this program.
pub fn program_beside() -> Result<PathBuf> {
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
