//! `qo list`.

use futures_util::TryStreamExt;
use qo::{Queue, Status, Task, TaskFilter, Timestamp};

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::output::style::{CYAN, DIM, RED, of_status};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, text, time};
use crate::session::Session;

/// How many tasks are asked for at once.
const PAGE_LIMIT: u64 = 1_000;

pub(super) async fn run(args: &ListArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if args.all && screen.json {
        // Every task is printed as it is found, so that a list of any length needs no memory.
        let filter = args.filter.to_filter(queue.now());
        let mut tasks = std::pin::pin!(queue.list_all(filter));
        while let Some(task) = tasks.try_next().await? {
            screen.json(&task)?;
        }
        return Ok(());
    }
    if let Some(interval) = args.watch.watch {
        let title = "qo list";
        return watch(screen, &queue, interval, title, async |screen| {
            let found = find(args, &queue).await?;
            render(&found, &queue, screen)
        })
        .await;
    }
    let found = find(args, &queue).await?;
    let text = render(&found, &queue, screen)?;
    screen.write(&text)?;
    tell_more(args, &found, screen);
    Ok(())
}

/// What was found.
struct Found {
    tasks: Vec<Task>,
    next: Option<String>,
}

async fn find(args: &ListArgs, queue: &Queue) -> Result<Found, Failure> {
    let filter: TaskFilter = args.filter.to_filter(queue.now());
    let limit = if args.all { u64::MAX } else { args.limit };
    let mut found = Found {
        tasks: Vec::new(),
        next: args.cursor.clone(),
    };
    loop {
        let left = limit - found.tasks.len() as u64;
        let asked = usize::try_from(left.min(PAGE_LIMIT)).unwrap_or(usize::MAX);
        let page = queue.list(&filter, found.next.as_deref(), asked).await?;
        found.tasks.extend(page.tasks);
        found.next = page.next;
        if found.next.is_none() {
            // A list that shows all tasks can show them in the order in which they came.
            found.tasks.sort_by_key(|task| (task.created_at, task.id));
            return Ok(found);
        }
        if found.tasks.len() as u64 >= limit {
            return Ok(found);
        }
    }
}

fn render(found: &Found, queue: &Queue, screen: &mut Screen) -> Result<String, Failure> {
    if screen.json {
        let mut lines = String::new();
        for task in &found.tasks {
            lines.push_str(&serde_json::to_string(task)?);
            lines.push('\n');
        }
        return Ok(lines);
    }
    if found.tasks.is_empty() {
        return Ok(if screen.terminals().stdout {
            "No tasks.\n".to_owned()
        } else {
            String::new()
        });
    }
    Ok(table(&found.tasks, queue.now()).render(screen.paint, screen.width()))
}

fn table(tasks: &[Task], now: Timestamp) -> Table {
    let mut table = Table::new()
        .column("ID")
        .flexible("TYPE")
        .column("QUEUE")
        .column("STATUS")
        .number("TRIES")
        .optional()
        .column("SUBMITTED")
        .optional()
        .column("WHEN")
        .flexible("NOTE");
    // A column that says the same for every task is of no use.
    let shows_queue = tasks.iter().any(|task| task.queue.as_str() != "default");
    for task in tasks {
        let (note, style) = note(task);
        table.row(vec![
            task.id.to_string().into(),
            task.task_type.as_str().into(),
            if shows_queue { task.queue.as_str() } else { "" }.into(),
            Cell::styled(task.status.as_str(), of_status(task.status)),
            task.attempt.to_string().into(),
            Cell::styled(time::relative(task.created_at, now), DIM),
            when(task, now).into(),
            Cell::styled(note, style),
        ]);
    }
    table
}

/// What time matters in this state.
pub(super) fn when(task: &Task, now: Timestamp) -> String {
    match task.status {
        Status::Pending if task.available_at > now => {
            format!("due {}", time::relative(task.available_at, now))
        }
        Status::Pending => match now.since(task.available_at).as_secs() {
            0 => "due now".to_owned(),
            _ => format!("due for {}", time::short(now.since(task.available_at))),
        },
        Status::Running => match task.lease_expires_at {
            Some(end) if end > now => format!("lease {} left", time::short(end.since(now))),
            Some(end) => format!("lease over for {}", time::short(now.since(end))),
            None => String::new(),
        },
        _ => format!(
            "ended {}",
            time::relative(task.completed_at.unwrap_or(task.updated_at), now)
        ),
    }
}

fn note(task: &Task) -> (String, anstyle::Style) {
    let progress = task.progress.as_deref();
    match (task.status, progress, &task.last_error) {
        (Status::Running, _, _) if task.cancel_requested => ("cancel requested".to_owned(), RED),
        (Status::Running, Some(progress), _) => {
            let message = progress.message.as_deref().unwrap_or_default();
            (format!("{:.0}% {message}", progress.percent), DIM)
        }
        (Status::Completed, _, _) | (_, _, None) => (String::new(), DIM),
        // A task that was called off without a reason has its status as the reason.
        (status, _, Some(error)) if **error == *status.as_str() => (String::new(), DIM),
        (_, _, Some(error)) => (error.to_string(), RED),
    }
}

fn tell_more(args: &ListArgs, found: &Found, screen: &mut Screen) {
    let Some(next) = &found.next else {
        return;
    };
    if screen.json {
        screen.json_note(&serde_json::json!({ "next_cursor": next }));
        return;
    }
    let shown = text::count(found.tasks.len() as u64, "task");
    let flag = screen.paint_notes.paint(CYAN, &format!("--cursor {next}"));
    let all = screen.paint_notes.paint(CYAN, "--all");
    let limit = args.limit;
    screen.note(format_args!(
        "{shown} shown, which is the limit of {limit}. There may be more: {flag} goes on, {all} shows every one."
    ));
}
