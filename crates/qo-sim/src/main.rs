//! The simulator as a program: `cargo xtask sim`.

mod args;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use args::{Invocation, Until};
use qo_core::mutant::Mutant;
use qo_sim::campaign::{Totals, explain, run_seed};
use qo_sim::mutants::{self, Planted, SEEDS_MAX, hunt};
use qo_sim::plan::Plan;
use qo_sim::run::run;
use qo_sim::subject::{Objects, Subject};

/// How often a long campaign says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let subject: Arc<dyn Subject> = Arc::new(Objects);
    match args::parse(std::env::args().skip(1)) {
        Err(mistake) => {
            eprintln!("sim: {mistake}");
            ExitCode::from(2)
        }
        Ok(Invocation::Help) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Ok(Invocation::One {
            plan,
            mutant,
            traces,
        }) => one(&plan, mutant, traces, &subject),
        Ok(Invocation::Many { from, until }) => many(from, until, &subject),
        Ok(Invocation::Mutants(one)) => hunt_all(one, &subject),
    }
}

fn one(plan: &Plan, mutant: Option<Mutant>, traces: bool, subject: &Arc<dyn Subject>) -> ExitCode {
    let _planted = mutant.map(Planted::new);
    let outcome = run(plan, Arc::clone(subject), traces);
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("{plan}");
    let mut totals = Totals::default();
    totals.add(&outcome);
    print!("{totals}");
    if outcome.found.0.is_empty() {
        println!("every promise was kept");
        return ExitCode::SUCCESS;
    }
    let name = mutant.map(mutants::name);
    print!("{}", explain(&outcome, subject, name.as_deref()));
    ExitCode::FAILURE
}

#[expect(clippy::disallowed_methods, reason = "a campaign takes real time")]
fn many(from: u64, until: Until, subject: &Arc<dyn Subject>) -> ExitCode {
    let started = Instant::now();
    let mut told = started;
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for seed in from.. {
        let over = match until {
            Until::Seeds(count) => seed - from >= count,
            Until::Time(time) => started.elapsed() >= time,
        };
        if over {
            break;
        }
        let outcome = run_seed(seed, subject);
        totals.add(&outcome);
        if !outcome.found.0.is_empty() {
            println!("{}", explain(&outcome, subject, None));
            failed.push(seed);
        }
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            println!(
                "{:?}: seed {seed}, {:.1} simulated hours, {} failed",
                started.elapsed(),
                totals.lasted.as_secs_f64() / 3_600.0,
                failed.len()
            );
        }
    }
    print!("{totals}");
    println!("took {:?}", started.elapsed());
    if failed.is_empty() {
        println!("every promise was kept");
        ExitCode::SUCCESS
    } else {
        println!(
            "{} seeds failed: {failed:?}; add them to crates/qo-sim/seeds.txt",
            failed.len()
        );
        ExitCode::FAILURE
    }
}

fn hunt_all(one: Option<Mutant>, subject: &Arc<dyn Subject>) -> ExitCode {
    let mut missed = 0;
    println!("| planted bug | seeds needed | found as |\n| --- | --- | --- |");
    for mutant in Mutant::ALL {
        if one.is_some_and(|one| one != mutant) {
            continue;
        }
        let caught = hunt(mutant, subject, SEEDS_MAX);
        println!("{caught}");
        missed += u64::from(caught.by.is_none());
    }
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        println!("{missed} planted bugs were not found");
        ExitCode::FAILURE
    }
}
