//! `qo queue`: the settings of queues.

use std::collections::BTreeMap;
use std::time::Duration;

use qo::{Queue, QueueInfo, QueueName, QueueSettings, QueueStats, Status};
use serde::Serialize;

use crate::args::queue::QueueSetting;
use crate::args::{QueueArgs, QueueCommand, QueueSetArgs};
use crate::failure::Failure;
use crate::output::table::{Cell, Table};
use crate::output::time;
use crate::session::Session;

pub(super) async fn run(args: &QueueArgs, session: &mut Session) -> Result<(), Failure> {
    // Everything that can be wrong is found before the store is opened.
    if let QueueCommand::Set(args) = &args.command {
        check(args)?;
    }
    let queue = session.connect().await?;
    let result = run_on(&queue, &args.command, session).await;
    queue.close().await;
    result
}

async fn run_on(
    queue: &Queue,
    command: &QueueCommand,
    session: &mut Session,
) -> Result<(), Failure> {
    let queues = queue.queues();
    match command {
        QueueCommand::List => list(queue, session).await,
        QueueCommand::Show(args) => show(&queues.get(args.queue.as_str()).await?, session),
        QueueCommand::Set(args) => {
            let change = |settings: &mut QueueSettings| apply(args, settings);
            let info = queues.change(args.queue.as_str(), change).await?;
            if session.screen.json {
                return session.screen.json(&info);
            }
            session.screen.note(if info.settings.is_empty() {
                format!("{} has no settings now.", info.queue)
            } else {
                format!("Set {}: {}.", info.queue, summary(&info.settings))
            });
            Ok(())
        }
    }
}

/// Refuses a change that changes nothing, or that is out of range.
fn check(args: &QueueSetArgs) -> Result<(), Failure> {
    let mut settings = QueueSettings::NONE;
    apply(args, &mut settings);
    settings.validate().map_err(qo::Error::from)?;
    if settings.is_empty() && args.unset.is_empty() && !args.clear {
        return Err(Failure::bad_input("there is nothing to set")
            .hint("name a setting, such as --retries 8; `qo queue set --help` lists them"));
    }
    let is_both = |setting: &QueueSetting| match setting {
        QueueSetting::Retries => args.retries.is_some(),
        QueueSetting::Timeout => args.timeout.is_some(),
        QueueSetting::Retention => args.retention.is_some(),
        QueueSetting::MaxWait => args.max_wait.is_some(),
        QueueSetting::MaxWaiting => args.max_waiting.is_some(),
        QueueSetting::Weights => !args.weight.is_empty(),
    };
    if args.unset.iter().any(is_both) {
        return Err(Failure::bad_input(
            "a setting cannot be set and unset at once",
        ));
    }
    Ok(())
}

fn apply(args: &QueueSetArgs, settings: &mut QueueSettings) {
    if args.clear {
        let extra = std::mem::take(&mut settings.extra);
        *settings = QueueSettings::NONE;
        settings.extra = extra;
    }
    for setting in &args.unset {
        match setting {
            QueueSetting::Retries => settings.max_retries = None,
            QueueSetting::Timeout => settings.timeout_seconds = None,
            QueueSetting::Retention => settings.retention_seconds = None,
            QueueSetting::MaxWait => settings.max_wait_ms = None,
            QueueSetting::MaxWaiting => settings.max_waiting = None,
            QueueSetting::Weights => settings.group_weights.clear(),
        }
    }
    let seconds = |duration: Duration| duration.as_millis().div_ceil(1_000);
    let seconds = |duration| u64::try_from(seconds(duration)).unwrap_or(u64::MAX);
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    settings.max_retries = args.retries.or(settings.max_retries);
    settings.timeout_seconds = args.timeout.map(seconds).or(settings.timeout_seconds);
    settings.retention_seconds = args.retention.map(seconds).or(settings.retention_seconds);
    settings.max_wait_ms = args.max_wait.map(millis).or(settings.max_wait_ms);
    settings.max_waiting = args.max_waiting.or(settings.max_waiting);
    settings.group_weights.extend(args.weight.iter().cloned());
}

/// A queue as `qo queue list --json` prints it.
#[derive(Debug, Serialize)]
struct QueueLine {
    #[serde(flatten)]
    info: QueueInfo,
    pending: u64,
    running: u64,
    paused: bool,
}

async fn list(queue: &Queue, session: &mut Session) -> Result<(), Failure> {
    let with_settings = queue.queues().list().await?;
    let stats = queue.stats().await?;
    let mut lines: BTreeMap<QueueName, QueueLine> = BTreeMap::new();
    let bare = |queue: &QueueName| QueueInfo {
        queue: queue.clone(),
        settings: QueueSettings::NONE,
        updated_at: None,
    };
    let none = QueueStats::default();
    let line = |info: QueueInfo| {
        let stats = stats.queues.get(&info.queue).unwrap_or(&none);
        let count = |status: Status| stats.statuses.get(&status).copied().unwrap_or(0);
        let line = QueueLine {
            pending: count(Status::Pending),
            running: count(Status::Running),
            paused: stats.paused,
            info,
        };
        (line.info.queue.clone(), line)
    };
    lines.extend(stats.queues.keys().map(|queue| line(bare(queue))));
    lines.extend(with_settings.into_iter().map(line));
    if session.screen.json {
        for line in lines.values() {
            session.screen.json(line)?;
        }
        return Ok(());
    }
    if lines.is_empty() {
        session.screen.note(
            "There are no queues. A queue exists once it has a task, or settings from `qo queue set`.",
        );
        return Ok(());
    }
    let mut table = Table::new()
        .column("QUEUE")
        .column("WAITING")
        .column("RUNNING")
        .column("SETTINGS");
    for (name, line) in &lines {
        let paused = if line.paused { " (paused)" } else { "" };
        let waiting = match line.info.settings.max_waiting {
            Some(limit) => format!("{} of {limit}", line.pending),
            None => line.pending.to_string(),
        };
        table.row(vec![
            Cell::from(format!("{name}{paused}")),
            Cell::from(waiting),
            Cell::from(line.running.to_string()),
            Cell::from(summary(&line.info.settings)),
        ]);
    }
    session.screen.table(&table)?;
    Ok(())
}

fn show(info: &QueueInfo, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(info);
    }
    let settings = &info.settings;
    let screen = &mut session.screen;
    let mut line = |name: &str, value: Option<String>, default: &str| {
        let value = value.unwrap_or_else(|| format!("not set ({default})"));
        screen.line(format_args!("{name:<12} {value}"))
    };
    line("Queue", Some(info.queue.to_string()), "")?;
    line(
        "Retries",
        settings.max_retries.map(|retries| retries.to_string()),
        "3",
    )?;
    line("Timeout", settings.timeout_seconds.map(seconds), "5 min")?;
    line(
        "Retention",
        settings.retention_seconds.map(seconds),
        "as configured",
    )?;
    line("Max wait", settings.max_wait_ms.map(millis), "any time")?;
    line(
        "Max waiting",
        settings.max_waiting.map(|limit| limit.to_string()),
        "any number",
    )?;
    line(
        "Weights",
        weights(settings),
        "each group gets a turn per round",
    )?;
    Ok(())
}

/// The settings in one line.
fn summary(settings: &QueueSettings) -> String {
    let parts = [
        settings
            .max_retries
            .map(|retries| format!("retries {retries}")),
        settings
            .timeout_seconds
            .map(|it| format!("timeout {}", seconds(it))),
        settings
            .retention_seconds
            .map(|it| format!("retention {}", seconds(it))),
        settings
            .max_wait_ms
            .map(|it| format!("max wait {}", millis(it))),
        settings
            .max_waiting
            .map(|limit| format!("max waiting {limit}")),
        weights(settings).map(|it| format!("weights {it}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

fn weights(settings: &QueueSettings) -> Option<String> {
    let weights = settings.group_weights.iter();
    let weights: Vec<String> = weights.map(|(group, it)| format!("{group}={it}")).collect();
    (!weights.is_empty()).then(|| weights.join(" "))
}

fn seconds(seconds: u64) -> String {
    time::duration(Duration::from_secs(seconds))
}

fn millis(millis: u64) -> String {
    time::duration(Duration::from_millis(millis))
}
