//! `qo errors`: failures grouped by their error.

use std::collections::BTreeMap;

use qo::{Queue, Status, Task, TaskFilter, TaskId, TaskOrder, Timestamp};
use serde::Serialize;

use super::error_pattern::error_pattern;
use crate::args::ErrorsArgs;
use crate::failure::Failure;
use crate::output::style::{BOLD, DIM, RED};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, text, time};
use crate::session::Session;

/// Number of tasks per request.
const PAGE_LIMIT: u64 = 1_000;
/// How many ids of a group are shown.
const IDS_SHOWN: usize = 3;

pub(super) async fn run(args: &ErrorsArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if let Some(interval) = args.watch.watch {
        return watch(screen, &queue, interval, "qo errors", async |screen| {
            let report = read(args, &queue).await?;
            render(&report, queue.now(), screen)
        })
        .await;
    }
    let report = read(args, &queue).await?;
    let shown = render(&report, queue.now(), screen)?;
    screen.write(&shown)?;
    if report.has_more {
        let read = text::count(report.read, "task");
        if screen.json {
            screen.json_note(&serde_json::json!({ "read": report.read, "more": true }));
        } else {
            screen.note(format_args!(
                "Only the newest {read} were read. There are more: raise --limit, or narrow the filter."
            ));
        }
    }
    Ok(())
}

/// Failures with the same pattern.
#[derive(Debug, Serialize)]
struct Group {
    pattern: String,
    count: u64,
    first: Timestamp,
    last: Timestamp,
    types: BTreeMap<String, u64>,
    /// The newest error.
    example: String,
    /// The newest tasks.
    ids: Vec<TaskId>,
}

#[derive(Debug)]
struct Report {
    groups: Vec<Group>,
    read: u64,
    has_more: bool,
}

async fn read(args: &ErrorsArgs, queue: &Queue) -> Result<Report, Failure> {
    let mut filter = TaskFilter {
        order: TaskOrder::Newest,
        ..args.filter.to_filter(queue.now())
    };
    if filter.statuses.is_empty() {
        filter.statuses.push(Status::Failed);
    }
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut read = 0;
    let mut cursor: Option<String> = None;
    loop {
        let page_size = usize::try_from((args.limit - read).min(PAGE_LIMIT)).unwrap_or(usize::MAX);
        let page = queue.list(&filter, cursor.as_deref(), page_size).await?;
        read += page.tasks.len() as u64;
        for task in &page.tasks {
            add(&mut groups, task);
        }
        cursor = page.next;
        if cursor.is_none() || read >= args.limit {
            break;
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.last)));
    Ok(Report {
        groups,
        read,
        has_more: cursor.is_some(),
    })
}

fn add(groups: &mut BTreeMap<String, Group>, task: &Task) {
    let error = task.last_error.as_deref().unwrap_or_default();
    let at = task.completed_at.unwrap_or(task.updated_at);
    let pattern = error_pattern(error);
    let group = groups.entry(pattern.clone()).or_insert_with(|| Group {
        pattern,
        count: 0,
        first: at,
        last: at,
        types: BTreeMap::new(),
        example: error.to_owned(),
        ids: Vec::new(),
    });
    group.count += 1;
    group.first = group.first.min(at);
    if at > group.last {
        group.last = at;
        error.clone_into(&mut group.example);
    }
    *group.types.entry(task.task_type.to_string()).or_default() += 1;
    if group.ids.len() < IDS_SHOWN {
        group.ids.push(task.id);
    }
}

fn render(report: &Report, now: Timestamp, screen: &Screen) -> Result<String, Failure> {
    if screen.json {
        let mut lines = String::new();
        for group in &report.groups {
            lines.push_str(&serde_json::to_string(group)?);
            lines.push('\n');
        }
        return Ok(lines);
    }
    if report.groups.is_empty() {
        return Ok(if screen.terminals().stdout {
            "No failed tasks.\n".to_owned()
        } else {
            String::new()
        });
    }
    let mut table = Table::new()
        .number("COUNT")
        .column("LAST")
        .column("FIRST")
        .optional()
        .flexible("TYPES")
        .column("NEWEST TASK")
        .optional()
        .flexible("ERROR");
    for group in &report.groups {
        let mut types: Vec<_> = group.types.iter().collect();
        types.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let types: Vec<String> = types
            .into_iter()
            .map(|(name, count)| format!("{name} {}", text::grouped(*count)))
            .collect();
        let newest = group.ids.first().map(ToString::to_string);
        table.row(vec![
            Cell::styled(text::grouped(group.count), BOLD),
            time::relative(group.last, now).into(),
            Cell::styled(time::relative(group.first, now), DIM),
            types.join(", ").into(),
            Cell::styled(newest.unwrap_or_default(), DIM),
            Cell::styled(&group.pattern, RED),
        ]);
    }
    Ok(table.render(screen.paint, screen.width()))
}
