//! Every engine keeps every promise on 300 fixed seeds, on 200 seeds of the day, and on every seed that ever failed.
//!
//! The seeds of the day follow from the UTC date: they are new every day and stay the same all day, so a failure can be
//! repeated. `cargo xtask sim` runs more seeds, or a single one.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use qo_check::Step;
use qo_sim::campaign::{Totals, explain};
use qo_sim::faults::{FaultKind, SIMULATED};
use qo_sim::plan::Plan;
use qo_sim::run::run;
use qo_sim::subject::{Subject, from_name};

const FIXED_SEEDS: u64 = 300;
const SEEDS_OF_THE_DAY: u64 = 200;
/// Above the seeds that people choose by hand.
const FIRST_SEED_OF_DAYS: u64 = 1_000_000_000;
/// The number of parts, which run side by side.
const PARTS: u64 = 2;
/// How many different steps the checks know, beside what only some engines do.
const STEPS: usize = 17;

/// An engine and a seed a line, with what it has shown.
const FAILED_ONCE: &str = include_str!("../../seeds.txt");

fn campaign(engine: &str, plans: impl Iterator<Item = Plan>) -> Totals {
    let subject: Arc<dyn Subject> = from_name(engine).unwrap();
    let mut totals = Totals::default();
    for plan in plans {
        let outcome = run(&plan, Arc::clone(&subject), false);
        assert!(
            outcome.found.0.is_empty(),
            "{}",
            explain(&outcome, &subject, None)
        );
        totals.add(&outcome);
    }
    println!("{engine}: {totals}");
    totals
}

/// The first seed of today in UTC.
#[expect(clippy::disallowed_methods, reason = "the seeds follow the real date")]
fn first_seed_of_the_day() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let day = since_1970.as_secs() / 86_400;
    FIRST_SEED_OF_DAYS + day * SEEDS_OF_THE_DAY
}

fn part(engine: &str, number: u64) {
    let first = first_seed_of_the_day();
    println!("{engine}: the seeds of the day start at {first}");
    let seeds = (0..FIXED_SEEDS)
        .chain(first..first + SEEDS_OF_THE_DAY)
        .filter(|seed| seed % PARTS == number);
    let totals = campaign(engine, seeds.map(Plan::of));
    // A campaign in which something never happens proves nothing about it.
    let common = totals
        .steps
        .keys()
        .filter(|step| !matches!(step, Step::Returned | Step::Fenced));
    assert_eq!(common.count(), STEPS, "{totals}");
    let subject = from_name(engine).unwrap();
    let kinds = SIMULATED.into_iter();
    // Who keeps the queue in one place lists only for a purge.
    let rare = |kind| kind == FaultKind::StaleList && engine != "direct";
    for kind in kinds.filter(|kind| subject.endures(*kind) && !rare(*kind)) {
        assert!(
            totals.faults.get(&kind).is_some_and(|count| *count > 0),
            "{kind}: {totals}"
        );
    }
    assert!(totals.undecided * 100 < totals.tasks, "{totals}");
}

fn failed_once(engine: &str) {
    let lines = FAILED_ONCE.lines().filter(|line| !line.starts_with('#'));
    let seeds = lines.filter_map(|line| {
        let (name, rest) = line.split_once(' ').unwrap();
        assert!(from_name(name).is_some(), "{line}");
        let seed = rest.split_whitespace().next().unwrap();
        (name == engine).then(|| seed.parse().unwrap())
    });
    // What a seed has shown may depend on whether first refusals are trusted.
    let plans = seeds.flat_map(|seed| {
        [true, false].map(|trust_first_refusal| Plan {
            trust_first_refusal,
            ..Plan::of(seed)
        })
    });
    campaign(engine, plans);
}

#[test]
fn direct_every_second_seed() {
    part("direct", 0);
}

#[test]
fn direct_the_other_seeds() {
    part("direct", 1);
}

#[test]
fn direct_every_seed_that_ever_failed() {
    failed_once("direct");
}

#[test]
fn json_every_second_seed() {
    part("json", 0);
}

#[test]
fn json_the_other_seeds() {
    part("json", 1);
}

#[test]
fn json_every_seed_that_ever_failed() {
    failed_once("json");
}

#[test]
fn slate_every_second_seed() {
    part("slate", 0);
}

#[test]
fn slate_the_other_seeds() {
    part("slate", 1);
}

#[test]
fn slate_every_seed_that_ever_failed() {
    failed_once("slate");
}
