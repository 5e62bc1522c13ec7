//! `cargo xtask test`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::integration;
use crate::paint::Paint;
use crate::steps::{Step, Verdict};
use crate::table::{self, Row};
use crate::ui;

/// Runs the steps, prints the verdict on each, and fails if one failed.
#[expect(
    clippy::unnecessary_wraps,
    reason = "all commands have the same signature"
)]
pub(crate) fn run(steps: &[Step]) -> Result<ExitCode> {
    let paint = Paint::for_stdout();
    // The tests of the dashboard run beside the integration tests, which come before them.
    let beside = steps.contains(&Step::Integration) && steps.contains(&Step::Ui);
    let mut ui = None;
    let (rows, total) = timed(|| {
        run_all(steps, |step| {
            let heading = format!("== {}: {}", step.name(), step.about());
            println!("\n{}", paint.bold(&heading));
            let (verdict, took) = match (step, ui.take()) {
                (Step::Ui, Some(done)) => done,
                (Step::Integration, _) if beside => {
                    let (integration, dashboard) = run_beside();
                    ui = Some(dashboard);
                    integration
                }
                (_, done) => {
                    ui = done;
                    timed(|| step.run())
                }
            };
            if let Verdict::Failed(reason) | Verdict::Skipped(reason) = &verdict {
                println!("{reason}");
            }
            (verdict, took)
        })
    });
    println!("\n{}", table::render(&rows, total, paint));
    Ok(if none_failed(&rows) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

type Timed = (Verdict, Duration);

/// Runs the integration tests with the tests of the dashboard beside them.
fn run_beside() -> (Timed, Timed) {
    let (prepared, preparing) = timed(ui::prepare);
    let (browser, unprepared) = match prepared {
        Ok(job) => (Some(job), None),
        Err(error) => (None, Some(Verdict::Failed(format!("{error:#}")))),
    };
    let (result, took) = timed(|| integration::run(browser));
    let (verdict, browser) = result.unwrap_or_else(|error| {
        let failed = Verdict::Failed(format!("{error:#}"));
        (failed, None)
    });
    let dashboard = match (unprepared, browser) {
        (Some(verdict), _) => (verdict, preparing),
        (None, Some(result)) => (ui::verdict(&result), preparing + result.took),
        (None, None) => {
            let reason = "the integration tests could not be started";
            (Verdict::Failed(reason.to_owned()), preparing)
        }
    };
    ((verdict, took), dashboard)
}

/// Runs all steps, also after a failure, so that one run shows all failures.
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

fn none_failed(rows: &[Row]) -> bool {
    !rows
        .iter()
        .any(|row| matches!(row.verdict, Verdict::Failed(_)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures the wall time of builds"
)]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let outcome = work();
    (outcome, started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_after_a_failed_one_run_and_the_run_fails() {
        let rows = run_all(&Step::ALL, |step| {
            let verdict = if step == Step::Fmt {
                Verdict::Failed("it is not formatted".into())
            } else {
                Verdict::Passed
            };
            (verdict, Duration::ZERO)
        });
        assert_eq!(
            rows.iter().map(|row| row.step).collect::<Vec<_>>(),
            Step::ALL
        );
        assert!(!none_failed(&rows));
    }

    #[test]
    fn a_skipped_step_is_not_a_failure() {
        let rows = run_all(&Step::ALL, |_| {
            (Verdict::Skipped("not needed".into()), Duration::ZERO)
        });
        assert!(none_failed(&rows));
    }
}
