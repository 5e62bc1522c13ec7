//! The lines that a worker prints: when it starts, for each ended attempt, and when it stops.

use std::time::Duration;

use qo::{AttemptOutcome, QueueName, TaskType, Timestamp, WorkerId, WorkerReport};
use serde_json::{Value, json};

use crate::commands::activity::EndedAttempt;
use crate::output::style::{BLUE, BOLD, DIM, GREEN, Paint, RED, YELLOW};
use crate::output::{Screen, text, time};

/// How the error of a snooze begins that the handler asked for.
const SNOOZE_TEXT: &str = "snoozed for ";

/// A worker that has started to claim tasks.
#[derive(Debug)]
pub(in crate::commands) struct StartedWorker<'a> {
    pub(in crate::commands) worker: &'a WorkerId,
    pub(in crate::commands) store: &'a str,
    pub(in crate::commands) types: Vec<&'a TaskType>,
    pub(in crate::commands) queues: &'a [QueueName],
    pub(in crate::commands) slots: usize,
}

/// A line that a worker prints.
#[derive(Debug)]
pub(in crate::commands) enum Line<'a> {
    /// The worker has started to claim tasks.
    Started(StartedWorker<'a>),
    /// An attempt has ended.
    Ended(&'a EndedAttempt),
    /// The worker claims no more tasks.
    Stopping {
        why: &'static str,
        running: usize,
        left: Duration,
    },
    /// The worker has stopped.
    Stopped {
        worker: &'a WorkerId,
        report: &'a WorkerReport,
    },
}

impl Line<'_> {
    /// Prints the line. The worker keeps running if the output is closed.
    pub(in crate::commands) fn print(&self, screen: &mut Screen, now: Timestamp) {
        let printed = if screen.json {
            screen.json(&self.json(now))
        } else {
            let line = self.text(screen.paint, now);
            screen.line(line).map_err(Into::into)
        };
        if let Err(failure) = printed {
            tracing::debug!(%failure, "cannot print a line");
        }
    }

    fn text(&self, paint: Paint, now: Timestamp) -> String {
        let at = |at| paint.paint(DIM, &time::time_of_day(at));
        match self {
            Self::Started(started) => format!(
                "{} worker {} on {}: runs {} from {}, up to {} at once; press Ctrl-C to stop",
                at(now),
                paint.paint(BOLD, started.worker.as_str()),
                started.store,
                joined(&started.types),
                match started.queues {
                    [] => "all queues".to_owned(),
                    [queue] => format!("queue {queue}"),
                    queues => format!("queues {}", joined(queues)),
                },
                text::count(started.slots as u64, "task"),
            ),
            Self::Ended(ended) => format!("{} {}", at(ended.at), ended_text(ended, paint)),
            Self::Stopping {
                why, running: 0, ..
            } => format!("{} stopping: {why}", at(now)),
            Self::Stopping { why, running, left } => format!(
                "{} stopping: {why}; waiting up to {} for {}; press Ctrl-C to stop at once",
                at(now),
                time::duration(Duration::from_secs(left.as_secs())),
                text::count(*running as u64, "task"),
            ),
            Self::Stopped { worker, report } => format!(
                "{} worker {} stopped after {}: {}",
                at(now),
                paint.paint(BOLD, worker.as_str()),
                text::count(report.attempts(), "attempt"),
                summary(report),
            ),
        }
    }

    fn json(&self, now: Timestamp) -> Value {
        match self {
            Self::Started(started) => json!({
                "event": "started", "at": now, "worker_id": started.worker, "store": started.store,
                "types": started.types, "queues": started.queues, "slots": started.slots,
            }),
            Self::Ended(ended) => ended_json(ended),
            Self::Stopping { why, running, left } => json!({
                "event": "stopping", "at": now, "reason": why, "running": running,
                "seconds_left": left.as_secs(),
            }),
            Self::Stopped { worker, report } => json!({
                "event": "stopped", "at": now, "worker_id": worker,
                "completed": report.completed, "retried": report.retried, "failed": report.failed,
                "cancelled": report.cancelled, "snoozed": report.snoozed, "released": report.released,
                "lost": report.lost, "abandoned": report.abandoned,
            }),
        }
    }
}

fn joined(words: &[impl ToString]) -> String {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// The counts of the outcomes that occurred.
pub(in crate::commands) fn summary(report: &WorkerReport) -> String {
    let parts = [
        (report.completed, "completed"),
        (report.retried, "retried"),
        (report.failed, "failed"),
        (report.cancelled, "cancelled"),
        (report.snoozed, "snoozed"),
        (report.released, "released"),
        (report.lost, "lost to another worker"),
        (report.abandoned, "abandoned until their leases expire"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{} {word}", text::grouped(number)))
        .collect();
    if parts.is_empty() {
        "no tasks".to_owned()
    } else {
        parts.join(", ")
    }
}

/// The word for an outcome and its style.
pub(in crate::commands) fn outcome_word(outcome: AttemptOutcome) -> (&'static str, anstyle::Style) {
    match outcome {
        AttemptOutcome::Completed => ("completed", GREEN),
        AttemptOutcome::Retried { .. } => ("retried", YELLOW),
        AttemptOutcome::Failed => ("failed", RED),
        AttemptOutcome::Cancelled => ("cancelled", DIM),
        AttemptOutcome::Snoozed { .. } => ("snoozed", BLUE),
        AttemptOutcome::Released => ("released", BLUE),
        AttemptOutcome::Lost => ("lost", YELLOW),
        AttemptOutcome::Abandoned => ("abandoned", RED),
        _ => ("ended", DIM),
    }
}

/// When the task is due again, if it is.
pub(in crate::commands) fn retry_at(outcome: AttemptOutcome) -> Option<Timestamp> {
    match outcome {
        AttemptOutcome::Retried { at } => Some(at),
        AttemptOutcome::Snoozed { until } => Some(until),
        _ => None,
    }
}

/// The time until the task is due again, as text.
pub(in crate::commands) fn retry_text(at: Timestamp, now: Timestamp) -> String {
    if at <= now {
        return "due now".to_owned();
    }
    match at.since(now) {
        soon if soon.as_secs() < 10 => format!("retry in {:.1} s", soon.as_secs_f64()),
        later => format!("retry in {}", time::duration(later)),
    }
}

fn ended_text(ended: &EndedAttempt, paint: Paint) -> String {
    let (word, style) = outcome_word(ended.outcome);
    let mut line = format!(
        "{} {} {} attempt {} {}",
        paint.paint(style, &format!("{word:<9}")),
        ended.task_type,
        ended.id,
        ended.attempt,
        paint.paint(DIM, &time::duration(ended.took)),
    );
    if let Some(at) = retry_at(ended.outcome) {
        line.push_str(", ");
        line.push_str(&retry_text(at, ended.at));
    }
    if ended.outcome == AttemptOutcome::Lost {
        line.push_str(": its lease was lost to another attempt, so its result was discarded");
    } else if let Some(error) = &ended.error
        && ended.outcome != AttemptOutcome::Cancelled
        // A snooze that the handler asked for explains itself.
        && !(matches!(ended.outcome, AttemptOutcome::Snoozed { .. })
            && error.starts_with(SNOOZE_TEXT))
    {
        let first = error.lines().next().unwrap_or_default();
        line.push_str(": ");
        line.push_str(&text::cut(&text::clean(first), 160));
    }
    line
}

fn ended_json(ended: &EndedAttempt) -> Value {
    json!({
        "event": "attempt",
        "at": ended.at,
        "id": ended.id,
        "type": ended.task_type,
        "queue": ended.queue,
        "attempt": ended.attempt,
        "outcome": outcome_word(ended.outcome).0,
        "duration_ms": u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
        "again_at": retry_at(ended.outcome),
        "error": ended.error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_printed_as_one_line() {
        let now = Timestamp::MIN;
        let shown = |ended: &EndedAttempt| Line::Ended(ended).text(Paint::default(), now);
        assert_eq!(
            shown(&EndedAttempt::example(AttemptOutcome::Completed, None)),
            "10:00:00.000 completed hello 550e8400-e29b-41d4-a716-446655440000 attempt 2 120 ms"
        );
        let at = "2026-01-01T10:00:05Z".parse().unwrap();
        let retried = EndedAttempt::example(
            AttemptOutcome::Retried { at },
            Some("exit code 1: boom\nTrace\nboom"),
        );
        assert!(
            shown(&retried).ends_with("attempt 2 120 ms, retry in 5.0 s: exit code 1: boom"),
            "{}",
            shown(&retried)
        );
    }

    #[test]
    fn json_contains_all_fields() {
        let failed = EndedAttempt::example(AttemptOutcome::Failed, Some("exit code 65\nmore"));
        let json = Line::Ended(&failed).json(Timestamp::MIN);
        assert_eq!(json["event"], "attempt");
        assert_eq!(json["outcome"], "failed");
        assert_eq!(json["duration_ms"], 120);
        assert_eq!(json["error"], "exit code 65\nmore");
        assert!(json["again_at"].is_null());
    }
}
