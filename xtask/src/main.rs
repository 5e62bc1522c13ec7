//! qo's set-up, tests and benchmarks: `cargo xtask`.

mod args;
mod bench;
mod chaos;
mod fuzz;
mod help;
mod man;
mod mutants;
mod paint;
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
        Ok(Invocation::Man) => man::run(),
        Ok(Invocation::Sim(arguments)) => sim::run(&arguments),
        Ok(Invocation::Fuzz(plan)) => fuzz::run(&plan),
        Ok(Invocation::Chaos(arguments)) => chaos::run(&arguments),
        Err(mistake) => {
            eprintln!("xtask: {mistake}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
