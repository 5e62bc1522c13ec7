//! A short run in each mode, always with the same faults. For long runs: `cargo xtask chaos --minutes 5`.
//!
//! They need the `qo` command, which cargo builds for the tests of the workspace. `cargo build -p qo-cli` builds it alone.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use qo_chaos::args::{Mode, Plan, program_beside};
use qo_chaos::{report, run};

/// Each run is a dozen processes, so the runs take turns.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Every kind of fault of processes, and all but two of requests, strike with this seed.
const SEED: u64 = 1;

fn short(mode: Mode) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = Plan {
        mode,
        seed: SEED,
        trouble: Duration::from_secs(20),
        keep: false,
        program: program_beside().unwrap(),
    };
    let report = run::run(&plan, &mut |line| eprintln!("{line}")).unwrap();
    let table = report::table(std::slice::from_ref(&report));
    eprintln!("{table}");
    assert!(report.breaches.is_empty(), "{table}");
    // A run without tasks and faults shows nothing.
    assert!(report.tasks >= 5 && report.attempts >= 5, "{table}");
    assert!(
        report.network_faults > 0 && report.process_faults > 0,
        "{table}"
    );
}

#[test]
fn direct_mode_keeps_its_promises() {
    short(Mode::Direct);
}

#[test]
fn the_json_object_keeps_its_promises() {
    short(Mode::Json);
}

#[test]
fn brokers_keep_their_promises() {
    short(Mode::Slate);
}
