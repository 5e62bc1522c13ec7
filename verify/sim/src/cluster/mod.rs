//! Cluster mode in the simulator: three nodes with simulated disks on a simulated network. In a fifth of the runs they have several groups.
//!
//! The shipping node runs here: openraft, the log, applying, snapshots, leading, and the commit loop, on the runtime of each process, with
//! files that lose what was not synced ([`disk`]) and messages that are lost, late, repeated or cut off in one direction ([`network`]).
//! Clients submit, claim, finish and read throughout ([`client`]), and a [`ledger`] compares every response with what was
//! acknowledged before. In a quarter of the runs tasks have ordering keys, limits and unique keys, and fail ([`rules`]): there every call is
//! recorded, every stored version is known from the entries that are applied ([`versions`]), and `qo-check` has the last word.
//! Meanwhile an operator replaces nodes ([`operator`]).

mod agreement;
mod client;
mod disk;
mod ledger;
mod network;
mod operator;
mod recovery;
mod rules;
mod run;
mod storms;
mod versions;

use std::panic::AssertUnwindSafe;

use qo_check::Promise;

pub use run::{ClusterOutcome, run};

use crate::mutants::Caught;

/// The name of the engine, where engines are chosen by name.
pub const NAME: &str = "cluster";

/// Searches for the bug that is switched on: with the seed that found it before, then seed by seed. A panic of a node is a finding, too.
pub fn hunt(known: Option<u64>, seeds_max: u64) -> Option<Caught> {
    known.into_iter().chain(0..seeds_max).find_map(|seed| {
        let running = AssertUnwindSafe(|| run(seed, false).found);
        let (promise, detail) = match std::panic::catch_unwind(running) {
            Ok(found) => found.0.into_iter().next()?,
            Err(_) => (Promise::Run, "the run panicked".to_owned()),
        };
        Some(Caught {
            seed,
            promise,
            detail,
        })
    })
}
