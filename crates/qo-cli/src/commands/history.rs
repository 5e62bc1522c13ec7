//! `qo history`: the events of a task, its stored versions, or the changes between versions.

use std::fmt::Write as _;

use qo::{Event, FieldChange, Queue, Timestamp, VersionStep};
use serde::Serialize;

use crate::args::HistoryArgs;
use crate::failure::Failure;
use crate::output::style::{BOLD, DIM, GREEN, RED, of_status};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, sealed, text, time};
use crate::session::Session;

/// Maximum length of a value in a diff.
const VALUE_CHARACTERS: usize = 100;

pub(super) async fn run(args: &HistoryArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if let Some(interval) = args.watch.watch {
        let title = format!("qo history {}", args.id);
        return watch(screen, &queue, interval, &title, async |screen| {
            render(args, &queue, screen).await
        })
        .await;
    }
    let text = render(args, &queue, screen).await?;
    Ok(screen.write(&text)?)
}

async fn render(args: &HistoryArgs, queue: &Queue, screen: &mut Screen) -> Result<String, Failure> {
    if !args.versions && !args.diff {
        let events = queue.history(args.id).await?;
        return render_events(&events, queue.now(), screen);
    }
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let steps = queue.version_steps(args.id, limit).await?;
    if screen.json {
        return steps_json(&steps, args.diff);
    }
    let now = queue.now();
    Ok(if args.diff {
        render_diff(&steps, now, screen)
    } else {
        render_versions(&steps, now, screen)
    })
}

fn render_events(events: &[Event], now: Timestamp, screen: &Screen) -> Result<String, Failure> {
    if screen.json {
        let mut lines = String::new();
        for event in events {
            lines.push_str(&serde_json::to_string(event)?);
            lines.push('\n');
        }
        return Ok(lines);
    }
    let mut table = Table::new()
        .column("WHEN")
        .column("TIME")
        .column("EVENT")
        .column("FROM")
        .optional()
        .column("TO")
        .number("ATTEMPT")
        .column("WORKER")
        .column("BY")
        .flexible("DETAIL");
    for event in events {
        table.row(vec![
            time::relative(event.at, now).into(),
            Cell::styled(time::absolute(event.at), DIM),
            event
                .action
                .map_or("", qo::EventAction::name)
                .replace('_', " ")
                .into(),
            Cell::styled(event.from.map_or("", qo::Status::as_str), DIM),
            Cell::styled(event.to.as_str(), of_status(event.to)),
            match event.attempt {
                0 => String::new(),
                attempt => attempt.to_string(),
            }
            .into(),
            event
                .worker
                .as_ref()
                .map_or("", qo::WorkerId::as_str)
                .into(),
            event.by.as_deref().map_or("", qo::Actor::as_str).into(),
            sealed::error(event.error.as_deref().unwrap_or_default())
                .into_owned()
                .into(),
        ]);
    }
    Ok(table.render(screen.paint, screen.width()))
}

fn render_versions(steps: &[VersionStep], now: Timestamp, screen: &Screen) -> String {
    let mut table = Table::new()
        .column("STORED")
        .column("TIME")
        .column("STATUS")
        .number("ATTEMPT")
        .number("REVISION")
        .column("WORKER")
        .flexible("VERSION");
    for step in steps {
        let mut row = vec![
            Cell::new(time::relative(step.stored_at, now)),
            Cell::styled(time::absolute(step.stored_at), DIM),
        ];
        match &step.task {
            Some(task) => row.extend([
                Cell::styled(task.status.as_str(), of_status(task.status)),
                task.attempt.to_string().into(),
                task.revision.to_string().into(),
                task.worker_id
                    .as_ref()
                    .map_or("", qo::WorkerId::as_str)
                    .into(),
            ]),
            None => row.extend([
                Cell::styled("deleted", RED),
                Cell::default(),
                Cell::default(),
                Cell::default(),
            ]),
        }
        row.push(Cell::styled(&step.version, DIM));
        table.row(row);
    }
    table.render(screen.paint, screen.width())
}

fn render_diff(steps: &[VersionStep], now: Timestamp, screen: &Screen) -> String {
    let paint = screen.paint;
    let mut shown = String::new();
    for (index, step) in steps.iter().enumerate() {
        let status = step
            .task
            .as_ref()
            .map_or("deleted", |task| task.status.as_str());
        let heading = format!("{status}  {}", time::both(step.stored_at, now));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(shown, "{}", paint.paint(BOLD, &heading));
        if step.changes.is_empty() && index == 0 {
            let _ = writeln!(shown, "  {}", paint.paint(DIM, "oldest version shown"));
        }
        for FieldChange {
            field,
            before,
            after,
            ..
        } in &step.changes
        {
            // Each version adds an event, which the heading already shows.
            if field == "events" {
                continue;
            }
            let value = |json: &Option<qo::Json>, style| match json {
                Some(json) => paint.paint(
                    style,
                    &text::cut(&text::clean(&shown_value(json)), VALUE_CHARACTERS),
                ),
                None => paint.paint(DIM, "none"),
            };
            let (before, after) = (value(before, RED), value(after, GREEN));
            let _ = writeln!(shown, "  {field}: {before} → {after}");
        }
    }
    shown
}

/// A value of a field, or in place of an encrypted one the name of its key.
fn shown_value(json: &qo::Json) -> String {
    if let Some(label) = sealed::payload(json) {
        return label;
    }
    match json.to_value::<String>() {
        Ok(text) if qo::encryption::error_sealed_with(&text).is_some() => {
            sealed::error(&text).into_owned()
        }
        _ => json.as_str().to_owned(),
    }
}

/// A stored version as `--json` shows it.
#[derive(Debug, Serialize)]
struct StepView<'a> {
    version: &'a str,
    stored_at: Timestamp,
    task: Option<&'a qo::Task>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<ChangeView<'a>>>,
}

#[derive(Debug, Serialize)]
struct ChangeView<'a> {
    field: &'a str,
    before: Option<&'a qo::Json>,
    after: Option<&'a qo::Json>,
}

fn steps_json(steps: &[VersionStep], diff: bool) -> Result<String, Failure> {
    let mut lines = String::new();
    for step in steps {
        let changes = step.changes.iter().map(|change| ChangeView {
            field: &change.field,
            before: change.before.as_ref(),
            after: change.after.as_ref(),
        });
        let view = StepView {
            version: &step.version,
            stored_at: step.stored_at,
            task: step.task.as_ref(),
            changes: diff.then(|| changes.collect()),
        };
        lines.push_str(&serde_json::to_string(&view)?);
        lines.push('\n');
    }
    Ok(lines)
}
