//! `qo workers`.

use std::time::Duration;

use anstyle::Style;
use qo::{Queue, Timestamp, WorkerInfo};
use serde::Serialize;

use crate::args::WorkersArgs;
use crate::failure::Failure;
use crate::output::style::{DIM, GREEN, RED, YELLOW};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, time};
use crate::session::Session;

/// A worker that was not heard of for so many thresholds counts as dead.
const DEAD_THRESHOLDS: u32 = 5;

pub(super) async fn run(args: &WorkersArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if let Some(interval) = args.watch.watch {
        return watch(screen, &queue, interval, "qo workers", async |screen| {
            look(args, &queue, screen).await
        })
        .await;
    }
    let text = look(args, &queue, screen).await?;
    Ok(screen.write(&text)?)
}

/// How a worker is, by when it was last heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Active,
    Stale,
    Dead,
}

impl State {
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

    fn shown(self) -> (&'static str, Style) {
        match self {
            Self::Active => ("active", GREEN),
            Self::Stale => ("stale", YELLOW),
            Self::Dead => ("dead", RED),
        }
    }
}

/// A worker as `--json` shows it: the stored record, and how it is.
#[derive(Debug, Serialize)]
struct WorkerView<'a> {
    #[serde(flatten)]
    worker: &'a WorkerInfo,
    state: State,
}

async fn look(args: &WorkersArgs, queue: &Queue, screen: &mut Screen) -> Result<String, Failure> {
    let mut workers = queue.workers().await?;
    let now = queue.now();
    workers.sort_by(|one, other| {
        let key = |worker: &WorkerInfo| {
            (
                State::of(worker, now, args.threshold),
                worker.worker_id.clone(),
            )
        };
        key(one).cmp(&key(other))
    });
    if screen.json {
        let mut lines = String::new();
        for worker in &workers {
            let state = State::of(worker, now, args.threshold);
            lines.push_str(&serde_json::to_string(&WorkerView { worker, state })?);
            lines.push('\n');
        }
        return Ok(lines);
    }
    if workers.is_empty() {
        return Ok(if screen.terminals().stdout {
            "No workers. `qo worker --exec TYPE=COMMAND` runs one.\n".to_owned()
        } else {
            String::new()
        });
    }
    let mut table = Table::new()
        .column("WORKER")
        .column("STATE")
        .column("HOST")
        .optional()
        .number("RUNNING")
        .number("COMPLETED")
        .number("FAILED")
        .column("HEARD OF")
        .column("STARTED")
        .optional()
        .flexible("TYPES")
        .flexible("TASKS")
        .optional();
    for worker in &workers {
        let (state, style) = State::of(worker, now, args.threshold).shown();
        let types: Vec<&str> = worker.types.iter().map(qo::TaskType::as_str).collect();
        let mut tasks: Vec<String> = worker
            .current_tasks
            .iter()
            .map(ToString::to_string)
            .collect();
        if tasks.is_empty() {
            tasks.extend(worker.current_task.map(|id| id.to_string()));
        }
        table.row(vec![
            worker.worker_id.as_str().into(),
            Cell::styled(state, style),
            worker.host.as_deref().unwrap_or_default().into(),
            format!("{} of {}", tasks.len(), worker.slots).into(),
            worker.tasks_completed.to_string().into(),
            worker.tasks_failed.to_string().into(),
            time::relative(worker.last_heartbeat, now).into(),
            Cell::styled(time::relative(worker.started_at, now), DIM),
            types.join(", ").into(),
            Cell::styled(tasks.join(", "), DIM),
        ]);
    }
    Ok(table.render(screen.paint, screen.width()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_judged_by_its_silence() {
        let started = Timestamp::from_millis(1_763_238_840_000);
        let worker = WorkerInfo::new("w".parse().unwrap(), started);
        for (seconds, state) in [
            (0, State::Active),
            (60, State::Active),
            (61, State::Stale),
            (300, State::Stale),
            (301, State::Dead),
        ] {
            let now = started.plus_millis(seconds * 1_000);
            assert_eq!(State::of(&worker, now, Duration::from_mins(1)), state);
        }
    }
}
