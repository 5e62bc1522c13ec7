//! `qo stats`.

use std::collections::BTreeMap;

use qo::{Actor, Pause, Pauses, Queue, QueueStats, Stats, Status, Timestamp};
use serde::Serialize;

use crate::args::StatsArgs;
use crate::failure::Failure;
use crate::output::style::{BOLD, DIM, YELLOW, of_status};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, text, time};
use crate::session::Session;

pub(super) async fn run(args: &StatsArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if let Some(interval) = args.watch.watch {
        return watch(screen, &queue, interval, "qo stats", async |screen| {
            read_and_render(args, &queue, screen).await
        })
        .await;
    }
    let text = read_and_render(args, &queue, screen).await?;
    Ok(screen.write(&text)?)
}

async fn read_and_render(
    args: &StatsArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<String, Failure> {
    let stats = queue.stats().await?;
    let now = queue.now();
    if screen.json {
        return Ok(format!(
            "{}\n",
            serde_json::to_string(&StatsView::new(&stats, now))?
        ));
    }
    Ok(render(&stats, now, args.types, screen))
}

/// The counts as `--json` shows them.
#[derive(Debug, Serialize)]
struct StatsView<'a> {
    queues: BTreeMap<&'a str, QueueView<'a>>,
    partial: bool,
    pauses: &'a Pauses,
    at: Timestamp,
}

#[derive(Debug, Serialize)]
struct QueueView<'a> {
    statuses: BTreeMap<&'static str, u64>,
    types: BTreeMap<&'a str, u64>,
    oldest_due: Option<Timestamp>,
    paused: bool,
}

impl<'a> StatsView<'a> {
    fn new(stats: &'a Stats, at: Timestamp) -> Self {
        let view = |queue: &'a QueueStats| QueueView {
            // Every status is present, so programs need not check for missing ones.
            statuses: Status::ALL
                .into_iter()
                .map(|status| (status.as_str(), count(queue, status)))
                .collect(),
            types: queue
                .types
                .iter()
                .map(|(name, count)| (name.as_str(), *count))
                .collect(),
            oldest_due: queue.oldest_due,
            paused: queue.paused,
        };
        Self {
            queues: stats
                .queues
                .iter()
                .map(|(name, queue)| (name.as_str(), view(queue)))
                .collect(),
            partial: stats.partial,
            pauses: &stats.pauses,
            at,
        }
    }
}

fn count(queue: &QueueStats, status: Status) -> u64 {
    queue.statuses.get(&status).copied().unwrap_or(0)
}

fn render(stats: &Stats, now: Timestamp, types: bool, screen: &Screen) -> String {
    if stats.queues.is_empty() {
        return format!("No tasks.\n{}", render_pauses(&stats.pauses, now, screen));
    }
    let mut table = Table::new()
        .column("QUEUE")
        .number("PENDING")
        .number("RUNNING")
        .number("COMPLETED")
        .number("FAILED")
        .number("CANCELLED")
        .number("ARCHIVED")
        .optional()
        .column("OLDEST WAIT")
        .column("STATE");
    let cell = |number: u64, status: Status| {
        let style = if number == 0 { DIM } else { of_status(status) };
        Cell::styled(text::grouped(number), style)
    };
    for (name, queue) in &stats.queues {
        let mut row = vec![Cell::new(name.as_str())];
        row.extend(Status::ALL.map(|status| cell(count(queue, status), status)));
        row.push(
            queue
                .oldest_due
                .map_or(String::new(), |at| time::short(now.since(at)))
                .into(),
        );
        row.push(Cell::styled(
            if queue.paused { "paused" } else { "" },
            YELLOW,
        ));
        table.row(row);
    }
    if stats.queues.len() > 1 {
        let mut row = vec![Cell::styled("total", BOLD)];
        row.extend(Status::ALL.map(|status| {
            let total = stats
                .queues
                .values()
                .map(|queue| count(queue, status))
                .sum();
            cell(total, status)
        }));
        row.extend([Cell::default(), Cell::default()]);
        table.row(row);
    }
    let mut shown = table.render(screen.paint, screen.width());
    if types {
        let mut table = Table::new().column("TYPE").column("QUEUE").number("TASKS");
        for (name, queue) in &stats.queues {
            for (task_type, number) in &queue.types {
                table.row(vec![
                    task_type.as_str().into(),
                    name.as_str().into(),
                    text::grouped(*number).into(),
                ]);
            }
        }
        shown.push('\n');
        shown.push_str(&table.render(screen.paint, screen.width()));
    }
    shown.push_str(&render_pauses(&stats.pauses, now, screen));
    if stats.partial {
        let note = "There are more tasks; the counts are partial.";
        shown.push_str(&screen.paint.paint(YELLOW, note));
        shown.push('\n');
    }
    shown
}

/// Who paused what, when and why.
fn render_pauses(pauses: &Pauses, now: Timestamp, screen: &Screen) -> String {
    if pauses.is_empty() {
        return String::new();
    }
    let mut table = Table::new()
        .column("PAUSED")
        .column("NAME")
        .column("SINCE")
        .column("BY")
        .column("REASON");
    let mut add = |kind: &str, name: &str, pause: &Pause| {
        let since = pause.since.map(|at| time::relative(at, now));
        table.row(vec![
            kind.into(),
            name.into(),
            since.unwrap_or_default().into(),
            pause.by.as_ref().map_or("", Actor::as_str).into(),
            pause.reason.as_deref().unwrap_or_default().into(),
        ]);
    };
    for (name, pause) in &pauses.queues {
        add("queue", name.as_str(), pause);
    }
    for (name, pause) in &pauses.types {
        add("type", name.as_str(), pause);
    }
    format!("\n{}", table.render(screen.paint, screen.width()))
}
