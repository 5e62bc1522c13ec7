//! `qo workers`: lists workers, and asks them to be quiet or to stop.

use std::time::Duration;

use anstyle::Style;
use qo::{Queue, Timestamp, WorkerAction, WorkerInfo, WorkerRequest};
use serde::Serialize;

use crate::args::{WorkerNames, WorkersArgs, WorkersCommand};
use crate::failure::Failure;
use crate::output::style::{DIM, GREEN, RED, YELLOW};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, text, time};
use crate::session::Session;

/// A worker without a heartbeat for this many thresholds is dead.
const DEAD_THRESHOLDS: u32 = 5;

pub(super) async fn run(args: &WorkersArgs, session: &mut Session) -> Result<(), Failure> {
    match &args.request {
        None => {}
        Some(WorkersCommand::Quiet(names)) => {
            return ask(names, Some(WorkerAction::Quiet), args.threshold, session).await;
        }
        Some(WorkersCommand::Stop(names)) => {
            return ask(names, Some(WorkerAction::Stop), args.threshold, session).await;
        }
        Some(WorkersCommand::Resume(names)) => {
            return ask(names, None, args.threshold, session).await;
        }
    }
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if let Some(interval) = args.watch.watch {
        return watch(screen, &queue, interval, "qo workers", async |screen| {
            render(args, &queue, screen).await
        })
        .await;
    }
    let text = render(args, &queue, screen).await?;
    Ok(screen.write(&text)?)
}

/// Asks workers for something, or for nothing any more. The first one that does not exist ends it.
async fn ask(
    names: &WorkerNames,
    action: Option<WorkerAction>,
    threshold: Duration,
    session: &mut Session,
) -> Result<(), Failure> {
    let by = session.actor();
    let queue = session.connect().await?;
    for name in &names.workers {
        let request = action.map(|action| WorkerRequest::new(action, queue.now(), by.clone()));
        let worker = queue.ask_worker(name, request).await?;
        let screen = &mut session.screen;
        if screen.json {
            let state = WorkerHealth::of(&worker, queue.now(), threshold);
            let worker = &worker;
            screen.json(&WorkerView { worker, state })?;
            continue;
        }
        let done = match action {
            Some(WorkerAction::Quiet) => "was asked to claim no more tasks",
            Some(WorkerAction::Stop) => "was asked to finish and exit",
            None => "may claim tasks again",
        };
        screen.line(format_args!("{name} {done}"))?;
    }
    queue.close().await;
    Ok(())
}

/// Health of a worker, by the age of its last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum WorkerHealth {
    Active,
    Stale,
    Dead,
}

impl WorkerHealth {
    fn of(worker: &WorkerInfo, now: Timestamp, threshold: Duration) -> Self {
        let silence = now.since(worker.last_heartbeat);
        if silence <= threshold {
            Self::Active
        } else if silence <= threshold.saturating_mul(DEAD_THRESHOLDS) {
            Self::Stale
        } else {
            Self::Dead
        }
    }

    fn label(self) -> (&'static str, Style) {
        match self {
            Self::Active => ("active", GREEN),
            Self::Stale => ("stale", YELLOW),
            Self::Dead => ("dead", RED),
        }
    }
}

/// A worker as `--json` prints it: the stored record and its health.
#[derive(Debug, Serialize)]
struct WorkerView<'a> {
    #[serde(flatten)]
    worker: &'a WorkerInfo,
    state: WorkerHealth,
}

async fn render(args: &WorkersArgs, queue: &Queue, screen: &mut Screen) -> Result<String, Failure> {
    let mut workers = queue.workers().await?;
    let now = queue.now();
    workers.sort_by(|one, other| {
        let key = |worker: &WorkerInfo| {
            (
                WorkerHealth::of(worker, now, args.threshold),
                worker.worker_id.clone(),
            )
        };
        key(one).cmp(&key(other))
    });
    if screen.json {
        let mut lines = String::new();
        for worker in &workers {
            let state = WorkerHealth::of(worker, now, args.threshold);
            lines.push_str(&serde_json::to_string(&WorkerView { worker, state })?);
            lines.push('\n');
        }
        return Ok(lines);
    }
    if workers.is_empty() {
        return Ok(if screen.terminals().stdout {
            "No workers. Start one with `qo worker --exec TYPE=COMMAND`.\n".to_owned()
        } else {
            String::new()
        });
    }
    let mut table = machine_columns(Table::new().column("WORKER").column("STATE"))
        .number("RUNNING")
        .number("COMPLETED")
        .number("FAILED")
        .column("HEARTBEAT")
        .column("STARTED")
        .optional()
        .flexible("TYPES")
        .flexible("TASKS")
        .optional();
    for worker in &workers {
        let health = WorkerHealth::of(worker, now, args.threshold);
        let (state, style) = match (&worker.request, health) {
            (Some(request), WorkerHealth::Active) => (asked(request.action), YELLOW),
            _ => health.label(),
        };
        let types: Vec<&str> = worker.types.iter().map(qo::TaskType::as_str).collect();
        let mut tasks: Vec<String> = worker
            .current_tasks
            .iter()
            .map(ToString::to_string)
            .collect();
        if tasks.is_empty() {
            tasks.extend(worker.current_task.map(|id| id.to_string()));
        }
        let mut row = vec![worker.worker_id.as_str().into(), Cell::styled(state, style)];
        row.extend(machine_cells(worker));
        row.extend([
            format!("{} of {}", tasks.len(), worker.slots).into(),
            worker.tasks_completed.to_string().into(),
            worker.tasks_failed.to_string().into(),
            time::relative(worker.last_heartbeat, now).into(),
            Cell::styled(time::relative(worker.started_at, now), DIM),
            types.join(", ").into(),
            Cell::styled(tasks.join(", "), DIM),
        ]);
        table.row(row);
    }
    Ok(table.render(screen.paint, screen.width()))
}

/// Adds the columns of [`machine_cells`].
pub(super) fn machine_columns(table: Table) -> Table {
    table
        .column("HOST")
        .optional()
        .number("CPU")
        .optional()
        .number("MEMORY")
        .optional()
}

/// Where a worker runs, and what its process uses there. What is not known is empty.
pub(super) fn machine_cells(worker: &WorkerInfo) -> [Cell; 3] {
    let memory = worker.memory_bytes.map(text::bytes);
    [
        worker.host.as_deref().unwrap_or_default().into(),
        text::cpu(worker.cpu_percent).into(),
        memory.unwrap_or_default().into(),
    ]
}

/// The state of an active worker that was asked for something.
fn asked(action: WorkerAction) -> &'static str {
    match action {
        WorkerAction::Quiet => "quiet",
        WorkerAction::Stop => "stopping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_from_the_age_of_the_heartbeat() {
        let started = Timestamp::from_millis(1_763_238_840_000);
        let worker = WorkerInfo::new("w".parse().unwrap(), started);
        for (seconds, state) in [
            (0, WorkerHealth::Active),
            (60, WorkerHealth::Active),
            (61, WorkerHealth::Stale),
            (300, WorkerHealth::Stale),
            (301, WorkerHealth::Dead),
        ] {
            let now = started.plus_millis(seconds * 1_000);
            assert_eq!(
                WorkerHealth::of(&worker, now, Duration::from_mins(1)),
                state
            );
        }
    }
}
