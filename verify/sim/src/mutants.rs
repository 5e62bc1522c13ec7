//! The hunt for planted bugs (mutants).
//!
//! Shipping code contains no planted bugs. `cargo xtask sim --mutants` copies the tree, plants the bugs of `verify/mutants` in the copy,
//! each behind a switch, and builds the simulator there. That simulator has [`SWITCH`]; any other cannot hunt.

use std::sync::Arc;

use qo_check::Promise;

use crate::campaign::run_seed;
use crate::run::RunOutcome;
use crate::subject::Subject;

/// The number of seeds within which a planted bug must be found.
pub const SEEDS_MAX: u64 = 300;

/// Switches a planted bug on for the current thread, or all of them off. Only a simulator with planted bugs has it.
pub const SWITCH: Option<fn(Option<&str>)> = None;

/// A planted bug, which is switched on until this is dropped.
#[derive(Debug)]
pub struct Planted(fn(Option<&str>));

impl Planted {
    /// Switches a bug on for this thread, if this simulator contains planted bugs.
    pub fn new(mutant: &str) -> Option<Self> {
        let switch = SWITCH?;
        switch(Some(mutant));
        Some(Self(switch))
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        (self.0)(None);
    }
}

/// How a bug was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caught {
    /// The first seed that found it.
    pub seed: u64,
    /// The promise that was broken.
    pub promise: Promise,
    /// What was wrong.
    pub detail: String,
}

/// Searches for the bug that is switched on: with the seed that found it before, then seed by seed.
pub fn hunt(known: Option<u64>, subject: &Arc<dyn Subject>, seeds_max: u64) -> Option<Caught> {
    known.into_iter().chain(0..seeds_max).find_map(|seed| {
        let RunOutcome { found, .. } = run_seed(seed, subject);
        let (promise, detail) = found.0.into_iter().next()?;
        Some(Caught {
            seed,
            promise,
            detail,
        })
    })
}
