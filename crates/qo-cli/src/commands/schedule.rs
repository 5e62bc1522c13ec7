//! `qo schedule`: tasks that are submitted repeatedly.

use std::time::Duration;

use qo::schedule::{BackfillReport, RunKind, ScheduleInfo, ScheduleSpec, TaskTemplate};
use qo::{FairnessGroup, LimitKey, OnFailure, Queue, Tag, Timestamp};
use serde_json::json;

use super::submit::read_input;
use crate::args::{ScheduleAddArgs, ScheduleArgs, ScheduleCommand};
use crate::failure::Failure;
use crate::output::table::{Cell, Table};
use crate::output::{sealed, time};
use crate::session::Session;

pub(super) async fn run(args: &ScheduleArgs, session: &mut Session) -> Result<(), Failure> {
    // Everything that can be wrong is found before the store is opened.
    let spec = match &args.command {
        ScheduleCommand::Add(args) => Some(spec(args, session)?),
        _ => None,
    };
    let queue = session.connect().await?;
    let result = run_on(&queue, &args.command, spec, session).await;
    queue.close().await;
    result
}

async fn run_on(
    queue: &Queue,
    command: &ScheduleCommand,
    spec: Option<ScheduleSpec>,
    session: &mut Session,
) -> Result<(), Failure> {
    let schedules = queue.schedules();
    match (command, spec) {
        (ScheduleCommand::Add(args), Some(spec)) => {
            let info = if args.replace {
                schedules.put(&args.name, spec).await?
            } else {
                schedules.add(&args.name, spec).await?
            };
            print(&info, queue.now(), session, "Added")
        }
        // Only `add` has a definition.
        (ScheduleCommand::Add(_), None) => Ok(()),
        (ScheduleCommand::List, _) => list(&schedules.list().await?, queue.now(), session),
        (ScheduleCommand::Show(args), _) => {
            show(&schedules.get(&args.name).await?, queue.now(), session)
        }
        (ScheduleCommand::Pause(args), _) => {
            let info = schedules.pause(&args.name).await?;
            print(&info, queue.now(), session, "Paused")
        }
        (ScheduleCommand::Resume(args), _) => {
            let info = schedules.resume(&args.name).await?;
            print(&info, queue.now(), session, "Resumed")
        }
        (ScheduleCommand::Trigger(args), _) => {
            let task = schedules.trigger(&args.name).await?;
            if session.screen.json {
                return session.screen.json(&json!({ "task_id": task }));
            }
            session.screen.line(task)?;
            Ok(())
        }
        (ScheduleCommand::Backfill(args), _) => {
            let report = schedules.backfill(&args.name, args.from, args.to).await?;
            backfilled(&report, session)
        }
        (ScheduleCommand::Remove(args), _) => {
            schedules.remove(&args.name).await?;
            if session.screen.json {
                return session.screen.json(&json!({ "removed": args.name }));
            }
            session.screen.note(format_args!(
                "Removed {}. Its submitted tasks stay.",
                args.name
            ));
            Ok(())
        }
    }
}

/// The definition, checked as far as possible without the store's time.
fn spec(args: &ScheduleAddArgs, session: &mut Session) -> Result<ScheduleSpec, Failure> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let input = match &args.input {
        Some(_) => Some(read_input(args.input.as_deref(), session)?),
        None => None,
    };
    let default = ScheduleSpec::without_rule(TaskTemplate {
        input,
        queue: args.queue.clone(),
        priority: args.priority,
        timeout_seconds: args.timeout.map(|timeout| timeout.as_secs().max(1)),
        max_retries: args.retries,
        retry_policy: args.retry_delays.policy(),
        expires_in_ms: args.expires_in.map(millis),
        tags: args.tag.clone(),
        ordering_key: args.ordering_key.clone(),
        ordering_on_failure: args.on_failure,
        limit_key: args.limit_key.clone(),
        fairness_group: args.group.clone(),
        ..TaskTemplate::new(args.task_type.clone())
    });
    let spec = ScheduleSpec {
        cron: args.cron.clone(),
        time_zone: args.time_zone.clone(),
        every_ms: args.every.map(millis),
        at: args.at.clone(),
        start: args.start,
        end: args.end,
        overlap: args.overlap.unwrap_or_default(),
        catch_up_ms: args.catch_up.map_or(default.catch_up_ms, millis),
        jitter_ms: args.jitter.map_or(0, millis),
        ..default
    };
    spec.ticks().map_err(qo::Error::from)?;
    Ok(spec)
}

fn print(
    info: &ScheduleInfo,
    now: Timestamp,
    session: &mut Session,
    done: &str,
) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(info);
    }
    session.screen.note(match info.next {
        Some(next) => format!("{done} {}. Next run {}.", info.name, time::both(next, now)),
        None => format!("{done} {}.", info.name),
    });
    Ok(())
}

fn list(schedules: &[ScheduleInfo], now: Timestamp, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        for info in schedules {
            session.screen.json(info)?;
        }
        return Ok(());
    }
    if schedules.is_empty() {
        session.screen.note(
            "There are no schedules. Add one with `qo schedule add NAME --cron LINE --type TYPE`.",
        );
        return Ok(());
    }
    let mut table = Table::new()
        .column("NAME")
        .column("RULE")
        .column("TYPE")
        .column("NEXT")
        .column("LAST")
        .column("RUNS");
    for info in schedules {
        table.row(vec![
            Cell::from(info.name.to_string()),
            Cell::from(rule(&info.spec)),
            Cell::from(info.spec.task.task_type.to_string()),
            Cell::from(next_text(info, now)),
            Cell::from(
                info.last
                    .as_ref()
                    .map_or_else(|| "never".to_owned(), |run| time::relative(run.tick, now)),
            ),
            Cell::from(info.fired.to_string()),
        ]);
    }
    session.screen.table(&table)?;
    Ok(())
}

/// When a schedule fires, for people.
fn rule(spec: &ScheduleSpec) -> String {
    match (&spec.cron, spec.every_ms) {
        (Some(line), _) => match &spec.time_zone {
            Some(zone) => format!("{line} ({zone})"),
            None => line.clone(),
        },
        (None, Some(millis)) => format!("every {}", time::duration(Duration::from_millis(millis))),
        (None, None) if spec.at.len() == 1 => "once".to_owned(),
        (None, None) => format!("{} times", spec.at.len()),
    }
}

fn next_text(info: &ScheduleInfo, now: Timestamp) -> String {
    match (info.paused_at, info.next) {
        (Some(_), _) => "paused".to_owned(),
        (None, Some(next)) => time::relative(next, now),
        (None, None) => "none".to_owned(),
    }
}

fn show(info: &ScheduleInfo, now: Timestamp, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(info);
    }
    let spec = &info.spec;
    let screen = &mut session.screen;
    let mut line = |name: &str, value: String| screen.line(format_args!("{name:<10} {value}"));
    line("Name", info.name.to_string())?;
    line("Rule", rule(spec))?;
    line("Task", spec.task.task_type.to_string())?;
    if let Some(input) = &spec.task.input {
        let shown = sealed::payload(input).unwrap_or_else(|| input.to_string());
        line("Input", shown)?;
    }
    if let Some(queue) = &spec.task.queue {
        line("Queue", queue.to_string())?;
    }
    for (name, value) in task_settings(&spec.task) {
        line(name, value)?;
    }
    line("Overlap", spec.overlap.as_str().to_owned())?;
    line(
        "Catch-up",
        time::duration(Duration::from_millis(spec.catch_up_ms)),
    )?;
    if spec.jitter_ms > 0 {
        line(
            "Jitter",
            time::duration(Duration::from_millis(spec.jitter_ms)),
        )?;
    }
    for (name, at) in [("Start", spec.start), ("End", spec.end)] {
        if let Some(at) = at {
            line(name, time::both(at, now))?;
        }
    }
    if let Some(paused) = info.paused_at {
        line("Paused", time::both(paused, now))?;
    }
    line(
        "Runs",
        format!(
            "{}, skipped {}, missed {}",
            info.fired, info.skipped, info.missed
        ),
    )?;
    for tick in &info.upcoming {
        line("Next", time::both(*tick, now))?;
    }
    for run in info.recent.iter().rev() {
        let kind = match run.kind {
            RunKind::Tick => "",
            RunKind::Trigger => " (triggered)",
            RunKind::Backfill => " (backfill)",
        };
        let text = format!("{}  {}{kind}", time::both(run.tick, now), run.task);
        line("Last", text)?;
    }
    Ok(())
}

/// The settings of the tasks that are not the defaults of a submit.
fn task_settings(task: &TaskTemplate) -> Vec<(&'static str, String)> {
    let millis = |millis| time::duration(Duration::from_millis(millis));
    let retries = task.max_retries.map(|retries| retries.to_string());
    let delays = task.retry_policy.as_ref().map(|policy| {
        format!(
            "after {}, times {}, up to {}",
            millis(policy.initial_interval_ms),
            policy.multiplier,
            millis(policy.max_interval_ms)
        )
    });
    let order = task.ordering().map(|rule| match rule.on_failure {
        OnFailure::Continue => rule.key.to_string(),
        OnFailure::Stop => format!("{}, stops on failure", rule.key),
    });
    let tags: Vec<&str> = task.tags.iter().map(Tag::as_str).collect();
    let settings = [
        (
            "Priority",
            task.priority.map(|priority| priority.to_string()),
        ),
        (
            "Timeout",
            task.timeout_seconds
                .map(|seconds| millis(seconds.saturating_mul(1_000))),
        ),
        ("Retries", retries),
        ("Delays", delays),
        ("Expiry", task.expires_in_ms.map(millis)),
        ("Tags", (!tags.is_empty()).then(|| tags.join(", "))),
        ("Order", order),
        (
            "Limit key",
            task.limit_key.as_ref().map(LimitKey::to_string),
        ),
        (
            "Group",
            task.fairness_group.as_ref().map(FairnessGroup::to_string),
        ),
    ];
    let given = settings.into_iter();
    given
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn backfilled(report: &BackfillReport, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(report);
    }
    for task in &report.tasks {
        session.screen.line(task)?;
    }
    let new = report.tasks.len() - report.existing.min(report.tasks.len());
    let tasks = if new == 1 { "task" } else { "tasks" };
    session.screen.note(match report.existing {
        0 => format!("Submitted {new} {tasks}."),
        existing => format!("Submitted {new} {tasks}; {existing} existed already."),
    });
    Ok(())
}
