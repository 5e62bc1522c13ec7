//! `qo list`.

use futures_util::TryStreamExt;
use qo::{Queue, Status, Task, TaskFilter, TaskOrder, Timestamp};
use qo_engine::sorted::ColumnOrder;
use qo_remote::wire::Sort;

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::output::style::{CYAN, DIM, RED, of_status};
use crate::output::table::{Cell, Table};
use crate::output::watch::watch;
use crate::output::{Screen, sealed, text, time};
use crate::session::Session;

/// Number of tasks per request.
const PAGE_LIMIT: u64 = 1_000;

pub(super) async fn run(args: &ListArgs, session: &mut Session) -> Result<(), Failure> {
    let column = column_order(args)?;
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    if args.all && screen.json {
        // Each task is printed as it is read, so a list of any length needs little memory.
        let filter = filter_of(args, &queue);
        let mut tasks = std::pin::pin!(queue.list_all(filter));
        while let Some(task) = tasks.try_next().await? {
            screen.json(&task)?;
        }
        return Ok(());
    }
    if let Some(interval) = args.watch.watch {
        let title = "qo list";
        return watch(screen, &queue, interval, title, async |screen| {
            let listing = read(args, column, &queue).await?;
            render(&listing, &queue, screen)
        })
        .await;
    }
    let listing = read(args, column, &queue).await?;
    let text = render(&listing, &queue, screen)?;
    screen.write(&text)?;
    note_examined(args, &listing, screen);
    note_continuation(args, &listing, screen);
    Ok(())
}

fn filter_of(args: &ListArgs, queue: &Queue) -> TaskFilter {
    TaskFilter {
        order: if args.sort == Sort::Id {
            TaskOrder::Id
        } else {
            TaskOrder::Newest
        },
        ..args.filter.to_filter(queue.now())
    }
}

/// The order by a column, if the list is sorted by one.
fn column_order(args: &ListArgs) -> Result<Option<ColumnOrder>, Failure> {
    let Some(column) = args.sort.column() else {
        if args.reverse {
            return Err(Failure::bad_input(
                "--reverse needs a sort by a column, such as --sort due",
            ));
        }
        return Ok(None);
    };
    if args.all || args.cursor.is_some() {
        return Err(Failure::bad_input(
            "a list that is sorted by a column has no pages: --all and --cursor need --sort newest or id",
        ));
    }
    Ok(Some(ColumnOrder {
        column,
        reverse: args.reverse,
    }))
}

/// The tasks to show.
struct Listing {
    tasks: Vec<Task>,
    next: Option<String>,
    /// The number of tasks that were sorted, if more match.
    among: Option<usize>,
    /// The number of tasks that were read, if it is known.
    examined: Option<u64>,
}

async fn read(
    args: &ListArgs,
    column: Option<ColumnOrder>,
    queue: &Queue,
) -> Result<Listing, Failure> {
    let filter = filter_of(args, queue);
    if let Some(order) = column {
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let sorted = queue.list_sorted(&filter, order, limit).await?;
        return Ok(Listing {
            tasks: sorted.tasks,
            next: None,
            among: (!sorted.is_complete).then_some(sorted.among),
            examined: None,
        });
    }
    let limit = if args.all { u64::MAX } else { args.limit };
    let mut listing = Listing {
        tasks: Vec::new(),
        next: args.cursor.clone(),
        among: None,
        examined: Some(0),
    };
    loop {
        let left = limit - listing.tasks.len() as u64;
        let page_size = usize::try_from(left.min(PAGE_LIMIT)).unwrap_or(usize::MAX);
        let page = queue
            .list(&filter, listing.next.as_deref(), page_size)
            .await?;
        listing.tasks.extend(page.tasks);
        listing.next = page.next;
        let examined = listing.examined.zip(page.examined);
        listing.examined = examined.map(|(sum, more)| sum + more);
        if listing.next.is_none() {
            // A complete list can be sorted exactly, whatever its ids are.
            if args.sort == Sort::Newest && args.cursor.is_none() {
                listing
                    .tasks
                    .sort_by_key(|task| std::cmp::Reverse((task.created_at, task.id)));
            }
            return Ok(listing);
        }
        if listing.tasks.len() as u64 >= limit {
            return Ok(listing);
        }
    }
}

fn render(listing: &Listing, queue: &Queue, screen: &mut Screen) -> Result<String, Failure> {
    if screen.json {
        let mut lines = String::new();
        for task in &listing.tasks {
            lines.push_str(&serde_json::to_string(task)?);
            lines.push('\n');
        }
        return Ok(lines);
    }
    if listing.tasks.is_empty() {
        return Ok(if screen.terminals().stdout {
            "No tasks.\n".to_owned()
        } else {
            String::new()
        });
    }
    Ok(table(&listing.tasks, queue.now()).render(screen.paint, screen.width()))
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
    // The column is empty, and so hidden, if all tasks are in the default queue.
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

/// The time that matters for the task's status.
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
            Some(end) => format!("lease expired {} ago", time::short(now.since(end))),
            None => String::new(),
        },
        _ => format!(
            "finished {}",
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
        // A task cancelled without a reason has its status as the reason.
        (status, _, Some(error)) if **error == *status.as_str() => (String::new(), DIM),
        (_, _, Some(error)) => (sealed::error(error).into_owned(), RED),
    }
}

/// What a search cost: texts and searches have no index.
fn note_examined(args: &ListArgs, listing: &Listing, screen: &mut Screen) {
    let is_search = args.filter.text.is_some() || args.filter.search.is_some();
    let Some(examined) = listing.examined.filter(|_| is_search) else {
        return;
    };
    if screen.json {
        screen.json_note(&serde_json::json!({ "examined": examined }));
        return;
    }
    let examined = text::count(examined, "task");
    screen.note(format_args!("The search read {examined}."));
}

fn note_continuation(args: &ListArgs, listing: &Listing, screen: &mut Screen) {
    if let Some(among) = listing.among {
        if screen.json {
            screen.json_note(&serde_json::json!({ "sorted_among": among, "complete": false }));
            return;
        }
        let among = text::count(among as u64, "task");
        screen.note(format_args!(
            "These are the first among the newest {among} that match. There are more: narrow the filter, or use --sort newest."
        ));
        return;
    }
    let Some(next) = &listing.next else {
        return;
    };
    if screen.json {
        screen.json_note(&serde_json::json!({ "next_cursor": next }));
        return;
    }
    let shown = text::count(listing.tasks.len() as u64, "task");
    let flag = screen.paint_notes.paint(CYAN, &format!("--cursor {next}"));
    let all = screen.paint_notes.paint(CYAN, "--all");
    let limit = args.limit;
    screen.note(format_args!(
        "{shown} shown, the limit of {limit}. There may be more: continue with {flag}, or show every task with {all}."
    ));
}
