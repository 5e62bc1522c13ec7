//! `qo top`: a live view of queues, rates, workers and failures.

use std::collections::BTreeMap;
use std::time::Duration;

use qo::{
    Queue, QueueName, QueueStats, Stats, Status, Task, TaskFilter, TaskOrder, Timestamp, WorkerInfo,
};
use serde::Serialize;

use super::top_keys::{Selected, interact};
use super::workers::{machine_cells, machine_columns};
use crate::args::TopArgs;
use crate::failure::Failure;
use crate::output::keyboard::Keyboard;
use crate::output::style::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::output::table::{Cell, Table};
use crate::output::watch::{interval, watch};
use crate::output::{Screen, text, time};
use crate::session::Session;

/// How many workers and failures are shown.
const WORKERS_SHOWN: usize = 10;
const FAILURES_SHOWN: usize = 5;
/// A worker without a heartbeat for this long counts as dead.
const WORKER_LIVE_MS: u64 = 60_000;
const MINUTE_MS: f64 = 60_000.0;

pub(super) async fn run(args: &TopArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let actor = session.actor();
    let screen = &mut session.screen;
    let mut before = count(&queue).await?;
    let pause = interval(&queue, args.interval);
    queue.runtime().sleep(pause).await;
    if args.once {
        let view = take(args, &queue, &before).await?.0;
        let shown = render(&view, queue.now(), screen)?;
        return Ok(screen.write(&shown)?);
    }
    let terminals = screen.terminals();
    let has_keys = terminals.stdin && terminals.stdout && !screen.json;
    if let Some(keyboard) = has_keys.then(Keyboard::open).flatten() {
        return interact(args, &queue, actor, before, pause, keyboard, screen).await;
    }
    watch(screen, &queue, Some(pause), "qo top", async |screen| {
        let (view, now) = take(args, &queue, &before).await?;
        before = now;
        render(&view, queue.now(), screen)
    })
    .await
}

/// The counts at a time.
pub(super) struct Counted {
    at: Timestamp,
    stats: Stats,
}

async fn count(queue: &Queue) -> Result<Counted, Failure> {
    let stats = queue.stats().await?;
    Ok(Counted {
        at: queue.now(),
        stats,
    })
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct TopView {
    at: Timestamp,
    interval_ms: u64,
    /// Whether only some of the tasks were counted.
    partial: bool,
    pub(super) queues: Vec<QueueView>,
    workers: WorkersView,
    pub(super) failures: Vec<FailureView>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct QueueView {
    pub(super) queue: String,
    pub(super) paused: bool,
    pending: u64,
    running: u64,
    completed: u64,
    failed: u64,
    oldest_due: Option<Timestamp>,
    completed_per_minute: f64,
    failed_per_minute: f64,
}

#[derive(Debug, Serialize)]
struct WorkersView {
    live: usize,
    dead: usize,
    busy: usize,
    slots: u64,
    #[serde(skip)]
    busiest: Vec<WorkerInfo>,
}

#[derive(Debug, Serialize)]
pub(super) struct FailureView {
    pub(super) id: qo::TaskId,
    task_type: String,
    queue: String,
    at: Timestamp,
    error: String,
}

pub(super) async fn take(
    args: &TopArgs,
    queue: &Queue,
    before: &Counted,
) -> Result<(TopView, Counted), Failure> {
    let failed = TaskFilter {
        statuses: vec![Status::Failed],
        queue: args.queue.clone(),
        order: TaskOrder::Newest,
        ..TaskFilter::default()
    };
    let now = count(queue).await?;
    let has_failures = now
        .stats
        .queues
        .values()
        .any(|queue| of(queue, Status::Failed) > 0);
    // In direct mode a list without matches reads every task.
    let failures = if has_failures {
        queue.list(&failed, None, FAILURES_SHOWN).await?.tasks
    } else {
        Vec::new()
    };
    let workers = queue.workers().await?;
    let view = view(args.queue.as_ref(), before, &now, workers, failures);
    Ok((view, now))
}

fn view(
    wanted: Option<&QueueName>,
    before: &Counted,
    now: &Counted,
    workers: Vec<WorkerInfo>,
    failures: Vec<Task>,
) -> TopView {
    let passed = now.at.since(before.at).max(Duration::from_millis(1));
    let queues = now.stats.queues.iter();
    let queues = queues
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
        .map(|(name, queue)| {
            let earlier = before.stats.queues.get(name);
            QueueView {
                queue: name.to_string(),
                paused: queue.paused,
                pending: of(queue, Status::Pending),
                running: of(queue, Status::Running),
                completed: of(queue, Status::Completed),
                failed: of(queue, Status::Failed),
                oldest_due: queue.oldest_due,
                completed_per_minute: rate(earlier, queue, Status::Completed, passed),
                failed_per_minute: rate(earlier, queue, Status::Failed, passed),
            }
        })
        .collect();
    let failures = failures.into_iter().map(|task| FailureView {
        id: task.id,
        task_type: task.task_type.to_string(),
        queue: task.queue.to_string(),
        at: task.completed_at.unwrap_or(task.updated_at),
        error: task.last_error.map(String::from).unwrap_or_default(),
    });
    TopView {
        at: now.at,
        interval_ms: u64::try_from(passed.as_millis()).unwrap_or(u64::MAX),
        partial: now.stats.partial,
        queues,
        workers: workers_view(workers, now.at),
        failures: failures.collect(),
    }
}

fn workers_view(workers: Vec<WorkerInfo>, now: Timestamp) -> WorkersView {
    let total = workers.len();
    let mut live: Vec<WorkerInfo> = workers
        .into_iter()
        .filter(|worker| worker.is_healthy(now, WORKER_LIVE_MS))
        .collect();
    live.sort_by_key(|worker| std::cmp::Reverse(worker.current_tasks.len()));
    WorkersView {
        live: live.len(),
        dead: total - live.len(),
        busy: live.iter().map(|worker| worker.current_tasks.len()).sum(),
        slots: live.iter().map(|worker| u64::from(worker.slots)).sum(),
        busiest: live.into_iter().take(WORKERS_SHOWN).collect(),
    }
}

fn of(queue: &QueueStats, status: Status) -> u64 {
    queue.statuses.get(&status).copied().unwrap_or(0)
}

/// How many tasks got a status per minute. Replays and purges lower the counts; then the rate is 0.
fn rate(before: Option<&QueueStats>, now: &QueueStats, status: Status, passed: Duration) -> f64 {
    let earlier = before.map_or(0, |queue| of(queue, status));
    let more = of(now, status).saturating_sub(earlier);
    let passed_ms = passed.as_secs_f64() * 1_000.0;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a count of tasks needs no more than 53 bits"
    )]
    let rate = more as f64 * MINUTE_MS / passed_ms;
    (rate * 10.0).round() / 10.0
}

fn render(view: &TopView, now: Timestamp, screen: &Screen) -> Result<String, Failure> {
    if screen.json {
        return Ok(format!("{}\n", serde_json::to_string(view)?));
    }
    Ok(render_selected(view, now, None, screen))
}

/// The view for people, in which one row may be selected.
pub(super) fn render_selected(
    view: &TopView,
    now: Timestamp,
    selected: Option<&Selected>,
    screen: &Screen,
) -> String {
    let (paint, width) = (screen.paint, screen.width());
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for queue in &view.queues {
        for (name, count) in [
            ("pending", queue.pending),
            ("running", queue.running),
            ("failed", queue.failed),
        ] {
            *totals.entry(name).or_default() += count;
        }
    }
    let of = |name: &str| text::grouped(totals.get(name).copied().unwrap_or(0));
    let more = if view.partial { "+" } else { "" };
    let workers = &view.workers;
    let heading = format!(
        "{}{more} pending, {} running, {} failed; {} live, {} dead, {} of {} slots busy",
        of("pending"),
        of("running"),
        of("failed"),
        text::count(workers.live as u64, "worker"),
        workers.dead,
        workers.busy,
        workers.slots,
    );
    let mut shown = format!("{}\n\n", paint.paint(BOLD, &heading));
    shown.push_str(&queues_table(&view.queues, now, selected).render(paint, width));
    if !workers.busiest.is_empty() {
        shown.push('\n');
        shown.push_str(&workers_table(&workers.busiest, now).render(paint, width));
    }
    if !view.failures.is_empty() {
        shown.push('\n');
        shown.push_str(&failures_table(&view.failures, now, selected).render(paint, width));
    }
    shown
}

/// The first cell of a row, marked if the row is selected.
fn marked(text: &str, row: &Selected, selected: Option<&Selected>) -> Cell {
    match selected {
        Some(selected) if selected == row => format!("▸ {text}").into(),
        Some(_) => Cell::indented(text),
        None => text.into(),
    }
}

fn queues_table(queues: &[QueueView], now: Timestamp, selected: Option<&Selected>) -> Table {
    let mut table = Table::new()
        .flexible("QUEUE")
        .column("STATE")
        .number("PENDING")
        .number("RUNNING")
        .column("OLDEST DUE")
        .number("DONE/MIN")
        .number("FAILED/MIN")
        .number("COMPLETED")
        .optional()
        .number("FAILED");
    for queue in queues {
        let waits = queue.oldest_due.map(|at| time::short(now.since(at)));
        let failing = if queue.failed_per_minute > 0.0 {
            RED
        } else {
            DIM
        };
        let working = if queue.completed_per_minute > 0.0 {
            GREEN
        } else {
            DIM
        };
        table.row(vec![
            marked(
                &queue.queue,
                &Selected::Queue(queue.queue.clone()),
                selected,
            ),
            Cell::styled(if queue.paused { "paused" } else { "" }, YELLOW),
            text::grouped(queue.pending).into(),
            text::grouped(queue.running).into(),
            waits.unwrap_or_default().into(),
            Cell::styled(format!("{:.1}", queue.completed_per_minute), working),
            Cell::styled(format!("{:.1}", queue.failed_per_minute), failing),
            Cell::styled(text::grouped(queue.completed), DIM),
            text::grouped(queue.failed).into(),
        ]);
    }
    table
}

fn workers_table(workers: &[WorkerInfo], now: Timestamp) -> Table {
    let mut table = machine_columns(Table::new().flexible("WORKER"))
        .number("BUSY")
        .number("COMPLETED")
        .number("FAILED")
        .column("HEARTBEAT");
    for worker in workers {
        let mut row = vec![worker.worker_id.as_str().into()];
        row.extend(machine_cells(worker));
        row.extend([
            format!("{} of {}", worker.current_tasks.len(), worker.slots).into(),
            text::grouped(worker.tasks_completed).into(),
            text::grouped(worker.tasks_failed).into(),
            time::relative(worker.last_heartbeat, now).into(),
        ]);
        table.row(row);
    }
    table
}

fn failures_table(failures: &[FailureView], now: Timestamp, selected: Option<&Selected>) -> Table {
    let mut table = Table::new()
        .column("NEWEST FAILURES")
        .flexible("TYPE")
        .column("WHEN")
        .flexible("ERROR");
    for failure in failures {
        table.row(vec![
            marked(
                &failure.id.to_string(),
                &Selected::Failure(failure.id),
                selected,
            ),
            failure.task_type.as_str().into(),
            time::relative(failure.at, now).into(),
            Cell::styled(&failure.error, RED),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::Paint;

    #[test]
    fn rates_are_differences_over_time_and_never_negative() {
        let queue = |completed| {
            let mut queue = QueueStats::default();
            queue.add(&"t".parse().unwrap(), Status::Completed, completed);
            queue
        };
        let passed = Duration::from_secs(30);
        let of =
            |before: Option<&QueueStats>, now| rate(before, &queue(now), Status::Completed, passed);
        let is = |rate: f64, expected: f64| assert!((rate - expected).abs() < 0.01, "{rate}");
        is(of(Some(&queue(10)), 25), 30.0);
        is(of(None, 5), 10.0);
        is(of(Some(&queue(10)), 3), 0.0);
    }

    #[test]
    fn the_names_of_all_rows_are_aligned_while_one_is_selected() {
        let view = |queue: &str| QueueView {
            queue: queue.to_owned(),
            ..QueueView::default()
        };
        let selected = Selected::Queue("b".to_owned());
        let queues = [view("a"), view("b")];
        let table = queues_table(&queues, Timestamp::MIN, Some(&selected));
        let text = table.render(Paint { on: false }, None);
        let names: Vec<&str> = text.lines().map(|line| line.get(..6).unwrap()).collect();
        assert_eq!(names, ["QUEUE ", "  a   ", "▸ b "]);
    }
}
