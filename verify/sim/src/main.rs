//! The simulator as a program: `cargo xtask sim`.

mod args;
mod many;

use std::process::ExitCode;
use std::sync::Arc;

use args::{Invocation, What};
use qo_sim::campaign::{Totals, add_special, explain};
use qo_sim::cluster;
use qo_sim::mutants::{Caught, Planted, SEEDS_MAX, hunt};
use qo_sim::plan::Plan;
use qo_sim::run::run;
use qo_sim::subject::{self, Subject};

fn main() -> ExitCode {
    let Invocation { engine, what } = match args::parse(std::env::args().skip(1)) {
        Err(mistake) => {
            eprintln!("sim: {mistake}");
            return ExitCode::from(2);
        }
        Ok(invocation) => invocation,
    };
    if engine == Some(cluster::NAME) {
        return on_cluster(what);
    }
    let mut subjects = subject::all();
    if let Some(engine) = engine {
        subjects.retain(|subject| subject.name() == engine);
    }
    match what {
        What::Help => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        What::One {
            plan,
            mutant,
            traces,
        } => match subjects.first() {
            Some(subject) => one(&plan, mutant.as_deref(), traces, subject),
            None => ExitCode::from(2),
        },
        What::Many { from, until, json } => many::many(from, until, json, subjects),
        What::Hunt { mutant, known } => match subjects.first() {
            Some(subject) => search(&mutant, || hunt(known, subject, SEEDS_MAX)),
            None => ExitCode::from(2),
        },
    }
}

/// Runs a seed of a cluster, or hunts a planted bug there.
fn on_cluster(what: What) -> ExitCode {
    match what {
        What::Help => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        What::Hunt { mutant, known } => search(&mutant, || cluster::hunt(known, SEEDS_MAX)),
        What::One {
            plan,
            mutant,
            traces,
        } => {
            let planted = mutant.as_deref().and_then(Planted::new);
            if mutant.is_some() && planted.is_none() {
                return no_planted_bugs();
            }
            let outcome = cluster::run(plan.seed, traces);
            for line in &outcome.trace {
                println!("{line}");
            }
            println!(
                "seed {}: {} tasks, {} deaths of nodes, {} simulated seconds",
                outcome.seed,
                outcome.tasks,
                outcome.deaths,
                outcome.lasted.as_secs()
            );
            if outcome.found.is_empty() {
                println!("no violations");
                return ExitCode::SUCCESS;
            }
            print!("{}", outcome.found);
            ExitCode::FAILURE
        }
        What::Many { .. } => {
            eprintln!(
                "sim: many seeds of a cluster run by `QO_CLUSTER_SEEDS=1000 cargo test -p qo-sim --test it cluster::`"
            );
            ExitCode::from(2)
        }
    }
}

/// Says that this simulator was built from a tree without planted bugs.
fn no_planted_bugs() -> ExitCode {
    eprintln!("sim: this simulator contains no planted bugs; run it by `cargo xtask sim`");
    ExitCode::from(2)
}

fn one(plan: &Plan, mutant: Option<&str>, traces: bool, subject: &Arc<dyn Subject>) -> ExitCode {
    let planted = mutant.and_then(Planted::new);
    if mutant.is_some() && planted.is_none() {
        return no_planted_bugs();
    }
    let mut outcome = run(plan, Arc::clone(subject), traces);
    add_special(&mut outcome, subject);
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("{plan}");
    let mut totals = Totals::default();
    totals.add(&outcome);
    print!("{totals}");
    if outcome.found.0.is_empty() {
        println!("no violations");
        return ExitCode::SUCCESS;
    }
    print!("{}", explain(&outcome, subject, mutant));
    ExitCode::FAILURE
}

/// Searches for a planted bug, and prints the seed that found it and the promise that was broken, which `cargo xtask` reads.
fn search(mutant: &str, hunt: impl FnOnce() -> Option<Caught>) -> ExitCode {
    let Some(_planted) = Planted::new(mutant) else {
        return no_planted_bugs();
    };
    match hunt() {
        Some(caught) => {
            println!("{} {}", caught.seed, caught.promise);
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}
