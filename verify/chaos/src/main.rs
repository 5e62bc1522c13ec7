//! `cargo xtask chaos`.

use std::process::ExitCode;

use qo_chaos::args::{self, Invocation};
use qo_chaos::{report, run};

fn main() -> ExitCode {
    let plans = match args::parse(std::env::args().skip(1)) {
        Ok(Invocation::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Invocation::Run(plans)) => plans,
        Err(mistake) => {
            eprintln!("chaos: {mistake}");
            return ExitCode::from(2);
        }
    };
    let mut reports = Vec::new();
    for plan in plans {
        match run::run(&plan, &mut |line| println!("{line}")) {
            Ok(report) => reports.push(report),
            Err(error) => {
                eprintln!("chaos: {}: {error:#}", plan.mode.name());
                return ExitCode::FAILURE;
            }
        }
    }
    print!("{}", report::table(&reports));
    if reports.iter().all(|report| report.breaches.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
