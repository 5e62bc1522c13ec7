//! The table at the end of `cargo xtask test`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::paint::Paint;
use crate::steps::{Step, Verdict};

/// The result of one step.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) step: Step,
    pub(crate) took: Duration,
    pub(crate) verdict: Verdict,
}

/// Lists every step with its time and its verdict, and how to repeat the failed ones. Some steps run at the same time, so the total may be
/// less than the sum.
pub(crate) fn render(rows: &[Row], total: Duration, paint: Paint) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "{}", paint.bold("step         seconds  result"));
    for Row {
        step,
        took,
        verdict,
    } in rows
    {
        let result = match verdict {
            Verdict::Passed => paint.green("ok"),
            Verdict::Unstable(tests) => paint.yellow(&format!("ok, but unstable: {tests}")),
            Verdict::Failed(_) => paint.red("FAILED"),
            Verdict::Skipped(reason) => paint.yellow(&format!("skipped: {reason}")),
        };
        let _ = writeln!(
            text,
            "{:<12} {:>7.1}  {result}",
            step.name(),
            took.as_secs_f64()
        );
    }
    let _ = writeln!(text, "{:<12} {:>7.1}", "total", total.as_secs_f64());
    for row in rows {
        if let Verdict::Failed(reason) = &row.verdict {
            let name = row.step.name();
            let _ = writeln!(text, "\n{}: {reason}", paint.red(&format!("{name} failed")));
            let _ = writeln!(text, "    to repeat it: cargo xtask test --only {name}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: Step, millis: u64, verdict: Verdict) -> Row {
        let took = Duration::from_millis(millis);
        Row {
            step,
            took,
            verdict,
        }
    }

    #[test]
    fn the_table_shows_times_verdicts_and_how_to_repeat_a_failed_step() {
        let rows = [
            row(Step::Fmt, 440, Verdict::Passed),
            row(Step::Deny, 0, Verdict::Skipped("it is missing".into())),
            row(
                Step::Integration,
                123_000,
                Verdict::Failed("it broke".into()),
            ),
        ];
        let expected = "\
step         seconds  result
fmt              0.4  ok
deny             0.0  skipped: it is missing
integration    123.0  FAILED
total          100.0

integration failed: it broke
    to repeat it: cargo xtask test --only integration
";
        let total = Duration::from_secs(100);
        assert_eq!(render(&rows, total, Paint::OFF), expected);
    }
}
