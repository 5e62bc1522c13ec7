//! Planted bugs: the campaign must find each of them, or it is too weak.

use std::fmt;
use std::sync::Arc;

use qo_core::mutant::{Mutant, plant};

use qo_check::Promise;

use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::subject::Subject;

/// How many seeds may be needed to find a planted bug.
pub const SEEDS_MAX: u64 = 300;

/// A planted bug that is there until this is dropped.
#[derive(Debug)]
pub struct Planted(());

impl Planted {
    /// Plants a bug on this thread.
    pub fn new(mutant: Mutant) -> Self {
        plant(Some(mutant));
        Self(())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        plant(None);
    }
}

/// The name of a planted bug on the command line and in tables.
pub fn name(mutant: Mutant) -> String {
    let mut name = String::new();
    for letter in format!("{mutant:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The planted bug of that name.
pub fn from_name(text: &str) -> Option<Mutant> {
    Mutant::ALL.into_iter().find(|mutant| name(*mutant) == text)
}

/// The planted bugs that an engine can commit.
pub fn of_engine(engine: &str) -> Vec<Mutant> {
    let mutants = Mutant::ALL.into_iter();
    mutants
        .filter(|mutant| engines_of(*mutant).contains(&engine))
        .collect()
}

/// The engines that can commit a planted bug, and on which it is hunted.
fn engines_of(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::AnsweredBeforeDurable => &["json", "slate"],
        Mutant::StoreTimeByWallClock => &["direct", "json"],
        // On slate an answer waits behind the writes before it, so that only a broker that nobody writes to could give a wrong one.
        Mutant::AnsweredUnconfirmed
        | Mutant::LeaseJudgedByMiddle
        | Mutant::LostRaceTakenForWon
        | Mutant::FailedWriteBuiltUpon
        | Mutant::RefusedSwapTakenForLost
        | Mutant::BuiltUponUnrecognised => &["json"],
        Mutant::EndedTaskForgotten | Mutant::LiveRecordLeft | Mutant::AnsweredBehindFailure => {
            &["slate"]
        }
        _ => &["direct"],
    }
}

/// How a planted bug was found.
#[derive(Debug, Clone)]
pub struct Caught {
    /// The engine.
    pub engine: &'static str,
    /// The bug.
    pub mutant: Mutant,
    /// How many seeds it took.
    pub seeds: u64,
    /// What the last of them has shown; nothing, if none did.
    pub by: Option<(u64, Promise, String)>,
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name(self.mutant);
        match &self.by {
            Some((_, promise, _)) => {
                let (engine, seeds) = (self.engine, self.seeds);
                write!(f, "| {name} | {engine} | {seeds} | {promise} |")
            }
            None => write!(f, "| {name} | {} | not in {} | |", self.engine, self.seeds),
        }
    }
}

/// Looks for a planted bug, seed by seed.
pub fn hunt(mutant: Mutant, subject: &Arc<dyn Subject>, seeds_max: u64) -> Caught {
    let _planted = Planted::new(mutant);
    for seed in 0..seeds_max {
        let Outcome { found, .. } = run(&Plan::of(seed), Arc::clone(subject), false);
        if let Some((promise, what)) = found.0.into_iter().next() {
            return Caught {
                engine: subject.name(),
                mutant,
                seeds: seed + 1,
                by: Some((seed, promise, what)),
            };
        }
    }
    Caught {
        engine: subject.name(),
        mutant,
        seeds: seeds_max,
        by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_bugs() {
        for mutant in Mutant::ALL {
            assert_eq!(from_name(&name(mutant)), Some(mutant));
        }
        assert_eq!(name(Mutant::NoSweeper), "no-sweeper");
        assert_eq!(from_name("nothing"), None);
    }
}
