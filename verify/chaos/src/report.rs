//! The final table.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use qo_check::Breaches;

use crate::args::Plan;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The run.
    pub plan: Plan,
    /// The faults, in a line.
    pub faults: String,
    /// Stored tasks.
    pub tasks: u64,
    /// Acknowledged submits, with retries.
    pub acknowledged: u64,
    /// Started attempts.
    pub attempts: u64,
    /// Completed and failed tasks.
    pub ends: (u64, u64),
    /// Checked versions of tasks; 0 where the proxy does not see them.
    pub versions: u64,
    /// Requests that reached the store.
    pub requests: u64,
    /// Faults of requests.
    pub network_faults: u64,
    /// Faults of processes.
    pub process_faults: u64,
    /// Processes that exited by themselves and were restarted.
    pub exits: u64,
    /// The time from the end of the trouble until all tasks were finished.
    pub recovery: Duration,
    /// The broken promises.
    pub breaches: Breaches,
    /// The folder of the logs, if they were kept.
    pub folder: Option<PathBuf>,
}

/// The figures and the breaches of every run.
pub fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "\n{:<7} {:>7} {:>7} {:>6} {:>6} {:>9} {:>6} {:>6} {:>9} {:>9} {:>7} {:>6} {:>9}  result\n",
        "mode",
        "seed",
        "seconds",
        "tasks",
        "acked",
        "attempts",
        "done",
        "failed",
        "versions",
        "requests",
        "faults",
        "kills",
        "recovery"
    );
    for report in reports {
        let result = match report.breaches.0.len() {
            0 => "ok".to_owned(),
            count => format!("{count} BREACHES"),
        };
        // Writing into a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{:<7} {:>7} {:>7} {:>6} {:>6} {:>9} {:>6} {:>6} {:>9} {:>9} {:>7} {:>6} {:>7.1} s  {result}",
            report.plan.mode.name(),
            report.plan.seed,
            report.plan.trouble.as_secs(),
            report.tasks,
            report.acknowledged,
            report.attempts,
            report.ends.0,
            report.ends.1,
            report.versions,
            report.requests,
            report.network_faults,
            report.process_faults,
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
        if !report.breaches.0.is_empty() {
            let _ = writeln!(text, "{}, seed {}:", plan.mode.name(), plan.seed);
            let _ = writeln!(text, "{}", report.breaches);
            let _ = writeln!(text, "    cargo xtask chaos {}", again(plan));
        }
    }
    text
}

/// The arguments that repeat a run's faults.
fn again(plan: &Plan) -> String {
    let (mode, seed) = (plan.mode, plan.seed);
    format!(
        "--mode {} --seed {seed} --seconds {}",
        mode.name(),
        plan.trouble.as_secs()
    )
}
