//! The table at the end.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use qo_sim::check::Found;

use crate::args::{Mode, Plan};

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The run.
    pub plan: Plan,
    /// What failed, in a line.
    pub faults: String,
    /// Tasks that are stored.
    pub tasks: u64,
    /// Submits that were acknowledged, repeats included.
    pub told: u64,
    /// Attempts that were started.
    pub attempts: u64,
    /// Tasks by their end: completed, failed.
    pub ends: (u64, u64),
    /// Versions of tasks that were followed from submit to end; none, where they cannot be seen.
    pub versions: u64,
    /// Requests that have reached the store.
    pub requests: u64,
    /// Faults of requests.
    pub struck: u64,
    /// Blows to processes, and processes that ended by themselves.
    pub blows: u64,
    /// Processes that ended although nobody asked them to, and were started again.
    pub quitters: u64,
    /// How long it took until all tasks had ended, once the trouble was over.
    pub recovery: Duration,
    /// What is wrong.
    pub found: Found,
    /// Where the logs are, if they were kept.
    pub folder: Option<PathBuf>,
}

/// Every run with its figures, and what is wrong.
pub fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "\n{:<7} {:>7} {:>7} {:>6} {:>6} {:>9} {:>6} {:>6} {:>9} {:>9} {:>7} {:>6} {:>9}  result\n",
        "mode",
        "seed",
        "seconds",
        "tasks",
        "told",
        "attempts",
        "done",
        "failed",
        "versions",
        "requests",
        "faults",
        "blows",
        "recovery"
    );
    for report in reports {
        let result = match report.found.0.len() {
            0 => "ok".to_owned(),
            count => format!("{count} FOUND"),
        };
        // Writing into a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{:<7} {:>7} {:>7} {:>6} {:>6} {:>9} {:>6} {:>6} {:>9} {:>9} {:>7} {:>6} {:>7.1} s  {result}",
            report.plan.mode.name(),
            report.plan.seed,
            report.plan.trouble.as_secs(),
            report.tasks,
            report.told,
            report.attempts,
            report.ends.0,
            report.ends.1,
            report.versions,
            report.requests,
            report.struck,
            report.blows,
            report.recovery.as_secs_f64(),
        );
    }
    for report in reports {
        let plan = &report.plan;
        if let Some(folder) = &report.folder {
            let _ = writeln!(
                text,
                "\n{}: the logs are in {}",
                plan.mode.name(),
                folder.display()
            );
        }
        if !report.found.0.is_empty() {
            let _ = writeln!(text, "{}, seed {}:", plan.mode.name(), plan.seed);
            let _ = writeln!(text, "{}", report.found);
            let _ = writeln!(text, "    cargo xtask chaos {}", again(plan));
        }
    }
    text
}

/// How the same trouble is made again.
fn again(plan: &Plan) -> String {
    let (mode, seed) = (plan.mode, plan.seed);
    let mode: Mode = mode;
    format!(
        "--mode {} --seed {seed} --seconds {}",
        mode.name(),
        plan.trouble.as_secs()
    )
}
