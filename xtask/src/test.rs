//! `cargo xtask test`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::paint::Paint;
use crate::steps::{Step, Verdict};
use crate::table::{self, Row};

/// Runs the steps, shows how each ended, and fails if one failed.
#[expect(clippy::unnecessary_wraps, reason = "all commands are run alike")]
pub(crate) fn run(steps: &[Step]) -> Result<ExitCode> {
    let paint = Paint::for_stdout();
    let rows = run_all(steps, |step| {
        println!(
            "\n{}",
            paint.bold(&format!("== {}: {}", step.name(), step.about()))
        );
        let (verdict, took) = timed(|| step.run());
        if let Verdict::Failed(reason) | Verdict::Skipped(reason) = &verdict {
            println!("{reason}");
        }
        (verdict, took)
    });
    println!("\n{}", table::render(&rows, paint));
    Ok(if all_hold(&rows) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All are run, also after a failure: one run shows everything that is wrong.
fn run_all(steps: &[Step], mut run_one: impl FnMut(Step) -> (Verdict, Duration)) -> Vec<Row> {
    steps
        .iter()
        .map(|&step| {
            let (verdict, took) = run_one(step);
            Row {
                step,
                took,
                verdict,
            }
        })
        .collect()
}

fn all_hold(rows: &[Row]) -> bool {
    !rows
        .iter()
        .any(|row| matches!(row.verdict, Verdict::Failed(_)))
}

#[expect(clippy::disallowed_methods, reason = "builds take real time")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let outcome = work();
    (outcome, started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stops_nothing_and_is_not_forgotten() {
        let rows = run_all(&Step::ALL, |step| {
            let verdict = if step == Step::Fmt {
                Verdict::Failed("it is untidy".into())
            } else {
                Verdict::Passed
            };
            (verdict, Duration::ZERO)
        });
        assert_eq!(
            rows.iter().map(|row| row.step).collect::<Vec<_>>(),
            Step::ALL
        );
        assert!(!all_hold(&rows));
    }

    #[test]
    fn a_skipped_step_is_no_failure() {
        let rows = run_all(&Step::ALL, |_| {
            (Verdict::Skipped("no need".into()), Duration::ZERO)
        });
        assert!(all_hold(&rows));
    }
}
