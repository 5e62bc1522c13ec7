//! The simulator as a program: `cargo xtask sim`.

mod args;
mod many;

use std::process::ExitCode;
use std::sync::Arc;

use args::{Invocation, What};
use qo_core::mutant::Mutant;
use qo_sim::campaign::{Totals, explain};
use qo_sim::mutants::{self, Planted, SEEDS_MAX, hunt};
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
            Some(subject) => one(&plan, mutant, traces, subject),
            None => ExitCode::from(2),
        },
        What::Many { from, until, json } => many::many(from, until, json, subjects),
        What::Mutants(one) => hunt_all(one, &subjects),
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

fn hunt_all(one: Option<Mutant>, subjects: &[Arc<dyn Subject>]) -> ExitCode {
    let mut missed = 0;
    println!("| planted bug | engine | seeds needed | found as |\n| --- | --- | --- | --- |");
    for subject in subjects {
        for mutant in mutants::of_engine(subject.name()) {
            if one.is_some_and(|one| one != mutant) {
                continue;
            }
            let caught = hunt(mutant, subject, SEEDS_MAX);
            println!("{caught}");
            missed += u64::from(caught.by.is_none());
        }
    }
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        println!("{missed} planted bugs were not found");
        ExitCode::FAILURE
    }
}
