//! Development tasks of qo: tests, benchmarks and packages (`cargo xtask`).

mod args;
mod bench;
mod chaos;
mod deny;
mod dist;
mod fuzz;
mod help;
mod integration;
mod lanes;
mod library;
mod man;
mod metadata;
mod mutants;
#[cfg(test)]
mod pages_tests;
mod paint;
mod repeat;
mod root;
mod run;
mod shipped;
mod sim;
mod steps;
mod table;
mod test;
mod typed;
mod ui;

use std::env;
use std::process::ExitCode;

use args::Invocation;

fn main() -> ExitCode {
    let outcome = match args::parse(env::args_os().skip(1)) {
        Ok(Invocation::Help(topic)) => help::run(topic),
        Ok(Invocation::Test(steps)) => test::run(&steps),
        Ok(Invocation::Bench(benchmark, arguments)) => bench::run(benchmark, &arguments),
        Ok(Invocation::Dist(plan)) => dist::run(&plan),
        Ok(Invocation::Man) => man::run(),
        Ok(Invocation::Sim(arguments)) => sim::run(&arguments),
        Ok(Invocation::Fuzz(plan)) => fuzz::run(&plan),
        Ok(Invocation::Chaos(arguments)) => chaos::run(&arguments),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
