//! `qo limit`: how many tasks run at once, and how many start within a time window.

use std::time::Duration;

use qo::{Limit, LimitInfo, Queue, StartLimit, Timestamp};
use serde_json::json;

use crate::args::{LimitArgs, LimitCommand, LimitSetArgs};
use crate::failure::Failure;
use crate::output::table::{Cell, Table};
use crate::output::time;
use crate::session::Session;

pub(super) async fn run(args: &LimitArgs, session: &mut Session) -> Result<(), Failure> {
    // Everything that can be wrong is found before the store is opened.
    let limit = match &args.command {
        LimitCommand::Set(args) => Some(limit_of(args)?),
        _ => None,
    };
    let queue = session.connect().await?;
    let result = run_on(&queue, &args.command, limit, session).await;
    queue.close().await;
    result
}

async fn run_on(
    queue: &Queue,
    command: &LimitCommand,
    limit: Option<Limit>,
    session: &mut Session,
) -> Result<(), Failure> {
    let limits = queue.limits();
    match (command, limit) {
        (LimitCommand::Set(args), Some(limit)) => {
            let info = limits.put(&args.name, limit).await?;
            if session.screen.json {
                return session.screen.json(&info);
            }
            session.screen.note(format_args!(
                "Set {}: {}. It takes effect within a few seconds.",
                info.name,
                bounds(&info.limit)
            ));
            Ok(())
        }
        // Only `set` has a definition.
        (LimitCommand::Set(_), None) => Ok(()),
        (LimitCommand::List, _) => list(&limits.list().await?, session),
        (LimitCommand::Show(args), _) => show(&limits.get(&args.name).await?, queue.now(), session),
        (LimitCommand::Remove(args), _) => {
            limits.remove(&args.name).await?;
            if session.screen.json {
                return session.screen.json(&json!({ "removed": args.name }));
            }
            session.screen.note(format_args!("Removed {}.", args.name));
            Ok(())
        }
    }
}

fn limit_of(args: &LimitSetArgs) -> Result<Limit, Failure> {
    let limit = Limit {
        queue: args.queue.clone(),
        task_type: args.task_type.clone(),
        limit_key: args.key.clone(),
        concurrent: args.concurrent,
        starts: args.starts.map(|(max, window)| StartLimit {
            max,
            window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
        }),
        ..Limit::default()
    };
    limit.validate().map_err(qo::Error::from)?;
    Ok(limit)
}

/// What a limit applies to, for people.
fn applies_to(limit: &Limit) -> String {
    let parts = [
        limit.queue.as_ref().map(|queue| format!("queue {queue}")),
        (limit.task_type.as_ref()).map(|task_type| format!("type {task_type}")),
        limit.limit_key.as_ref().map(|key| format!("key {key}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

/// The bounds of a limit, for people.
fn bounds(limit: &Limit) -> String {
    let concurrent = limit.concurrent.map(|max| format!("{max} at once"));
    let starts = limit.starts.map(|starts| {
        let window = time::duration(Duration::from_millis(starts.window_ms));
        format!("{} starts in {window}", starts.max)
    });
    let parts: Vec<String> = concurrent.into_iter().chain(starts).collect();
    parts.join(", ")
}

/// What is used of a limit, for people.
fn used(info: &LimitInfo) -> String {
    let Some(usage) = info.usage else {
        return "-".to_owned();
    };
    let of = |used: Option<u32>, max: Option<u32>, what: &str| {
        let (used, max) = (used?, max?);
        Some(format!("{used} of {max} {what}"))
    };
    let running = of(usage.running, info.limit.concurrent, "running");
    let starts = info.limit.starts.map(|starts| starts.max);
    let started = of(usage.started, starts, "started");
    let parts: Vec<String> = running.into_iter().chain(started).collect();
    parts.join(", ")
}

fn list(limits: &[LimitInfo], session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        for info in limits {
            session.screen.json(info)?;
        }
        return Ok(());
    }
    if limits.is_empty() {
        session.screen.note(
            "There are no limits. Set one with `qo limit set NAME --queue QUEUE --concurrent N`.",
        );
        return Ok(());
    }
    let mut table = Table::new()
        .column("NAME")
        .column("APPLIES TO")
        .column("LIMIT")
        .column("USED");
    for info in limits {
        table.row(vec![
            Cell::from(info.name.to_string()),
            Cell::from(applies_to(&info.limit)),
            Cell::from(bounds(&info.limit)),
            Cell::from(used(info)),
        ]);
    }
    session.screen.table(&table)?;
    Ok(())
}

fn show(info: &LimitInfo, now: Timestamp, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(info);
    }
    let screen = &mut session.screen;
    let mut line = |name: &str, value: String| screen.line(format_args!("{name:<10} {value}"));
    line("Name", info.name.to_string())?;
    line("Applies to", applies_to(&info.limit))?;
    line("Limit", bounds(&info.limit))?;
    line("Used", used(info))?;
    line("Changed", time::both(info.updated_at, now))?;
    Ok(())
}
