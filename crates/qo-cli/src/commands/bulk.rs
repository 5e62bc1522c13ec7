//! `qo replay`, `run-now`, `cancel`, `archive`, `unarchive` and `purge`: operations on tasks selected by ids or by a filter.
//!
//! With a filter, the command counts the matching tasks first and asks for confirmation. There is no transaction: each task is
//! changed separately and failures are reported. Running the command again continues with the remaining tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use qo::{BulkReport, Error, Queue, Status, Task, TaskFilter, TaskId, Timestamp};
use serde::Serialize;

use crate::args::{
    ArchiveArgs, BulkArgs, CancelArgs, PurgeArgs, ReplayArgs, RunNowArgs, UnarchiveArgs,
};
use crate::failure::{Failure, FailureKind};
use crate::output::progress::Progress;
use crate::output::style::{BOLD, RED};
use crate::output::{Screen, text};
use crate::session::Session;

/// Maximum number of tasks selected by id to change at once.
const CONCURRENCY: usize = 16;
/// Maximum number of failures to print one by one; `--json` prints all.
const FAILURES_PRINTED_MAX: usize = 20;

pub(super) async fn replay(args: &ReplayArgs, session: &mut Session) -> Result<(), Failure> {
    run(Operation::Replay, &args.tasks, session).await
}

pub(super) async fn run_now(args: &RunNowArgs, session: &mut Session) -> Result<(), Failure> {
    run(Operation::RunNow, &args.tasks, session).await
}

pub(super) async fn cancel(args: &CancelArgs, session: &mut Session) -> Result<(), Failure> {
    let reason = args.reason.as_deref();
    run(Operation::Cancel { reason }, &args.tasks, session).await
}

pub(super) async fn archive(args: &ArchiveArgs, session: &mut Session) -> Result<(), Failure> {
    run(Operation::Archive, &args.tasks, session).await
}

pub(super) async fn unarchive(args: &UnarchiveArgs, session: &mut Session) -> Result<(), Failure> {
    run(Operation::Unarchive, &args.tasks, session).await
}

pub(super) async fn purge(args: &PurgeArgs, session: &mut Session) -> Result<(), Failure> {
    let older_than = args.older_than;
    let filter = &args.tasks.filter;
    let has_other_conditions = filter.queue.is_some()
        || filter.task_type.is_some()
        || filter.tag.is_some()
        || filter.shard.is_some()
        || filter.since.is_some();
    if older_than.is_some() && has_other_conditions {
        return Err(
            Failure::bad_input("--older-than can be combined with --status only")
                .hint("archive the tasks first, then purge the archived ones"),
        );
    }
    run(Operation::Purge { older_than }, &args.tasks, session).await
}

/// An operation on tasks.
#[derive(Debug, Clone, Copy)]
enum Operation<'a> {
    Replay,
    RunNow,
    Cancel { reason: Option<&'a str> },
    Archive,
    Unarchive,
    Purge { older_than: Option<Duration> },
}

impl Operation<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::RunNow => "run-now",
            Self::Cancel { .. } => "cancel",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
            Self::Purge { .. } => "purge",
        }
    }

    /// Its name in JSON.
    fn json_name(self) -> &'static str {
        match self {
            Self::RunNow => "run_now",
            other => other.name(),
        }
    }

    /// The question that asks for confirmation.
    fn question(self) -> &'static str {
        match self {
            Self::Replay => "Replay them?",
            Self::RunNow => "Run them now?",
            Self::Cancel { .. } => "Cancel them?",
            Self::Archive => "Archive them?",
            Self::Unarchive => "Unarchive them?",
            Self::Purge { .. } => "Purge them?",
        }
    }

    /// The participle for a changed task.
    fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::RunNow => "made due",
            Self::Cancel { .. } => "cancelled",
            Self::Archive => "archived",
            Self::Unarchive => "unarchived",
            Self::Purge { .. } => "purged",
        }
    }

    /// The statuses that a filter without any selects.
    fn statuses(self) -> &'static [Status] {
        match self {
            Self::Replay => &[Status::Failed],
            Self::RunNow => &[Status::Pending],
            Self::Cancel { .. } => &[Status::Pending, Status::Running],
            Self::Archive => &[Status::Completed, Status::Failed, Status::Cancelled],
            Self::Unarchive => &[Status::Archived],
            Self::Purge { .. } => &[
                Status::Completed,
                Status::Failed,
                Status::Cancelled,
                Status::Archived,
            ],
        }
    }

    /// Whether the operation applies to a task that matches the filter.
    fn applies_to(self, task: &Task, now: Timestamp) -> bool {
        match self {
            Self::RunNow => {
                task.status != Status::Pending || (task.available_at > now && !task.is_expired(now))
            }
            Self::Purge {
                older_than: Some(age),
            } => {
                let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                task.completed_at.unwrap_or(task.updated_at) < now.minus_millis(age_ms)
            }
            _ => true,
        }
    }

    /// Changes one task. Returns what was done.
    async fn one(self, queue: &Queue, id: TaskId) -> Result<&'static str, Error> {
        match self {
            Self::Replay => queue.replay(id).await.map(drop)?,
            Self::RunNow => queue.run_now(id).await.map(drop)?,
            Self::Cancel { reason } => {
                let task = queue.cancel(id, reason).await?;
                if task.status == Status::Running {
                    return Ok("cancel requested");
                }
            }
            Self::Archive => queue.archive(id).await.map(drop)?,
            Self::Unarchive => queue.unarchive(id).await.map(drop)?,
            Self::Purge { .. } => queue.purge(id).await?,
        }
        Ok(self.done())
    }

    /// Changes all matching tasks.
    async fn all(
        self,
        queue: &Queue,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        match self {
            Self::Replay => queue.replay_all(filter, progress).await,
            Self::RunNow => queue.run_now_all(filter, progress).await,
            Self::Cancel { reason } => queue.cancel_all(filter, reason, progress).await,
            Self::Archive => queue.archive_all(filter, progress).await,
            Self::Unarchive => queue.unarchive_all(filter, progress).await,
            Self::Purge { older_than: None } => queue.purge_all(filter, progress).await,
            Self::Purge {
                older_than: Some(age),
            } => {
                queue
                    .purge_older_than(age, &filter.statuses, progress)
                    .await
            }
        }
    }
}

async fn run(
    operation: Operation<'_>,
    args: &BulkArgs,
    session: &mut Session,
) -> Result<(), Failure> {
    let by_filter = !args.filter.is_empty()
        || args.all
        || matches!(
            operation,
            Operation::Purge {
                older_than: Some(_)
            }
        );
    if !args.ids.is_empty() && by_filter {
        return Err(Failure::bad_input("use either ids or a filter, not both"));
    }
    if args.ids.is_empty() && !by_filter {
        return Err(Failure::bad_input(format!("qo {} needs task ids or a filter", operation.name())).hint(
            format!(
                "use `qo {0} ID...`, or a filter: --type TYPE, --queue QUEUE, --tag TAG, --since 2h or --all; --dry-run only counts the tasks",
                operation.name()
            ),
        ));
    }
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    let result = if by_filter {
        run_by_filter(operation, args, &queue, screen).await
    } else {
        run_by_ids(operation, args, &queue, screen).await
    };
    queue.close().await;
    result
}

async fn run_by_ids(
    operation: Operation<'_>,
    args: &BulkArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if args.dry_run {
        let mut preview = Preview::default();
        for id in &args.ids {
            preview.add(&queue.get(*id).await?);
        }
        return preview.print(operation, screen);
    }
    let mut report = BulkReport::default();
    let mut results = futures_util::stream::iter(args.ids.iter().copied())
        .map(|id| async move { (id, operation.one(queue, id).await) })
        .buffered(CONCURRENCY);
    while let Some((id, result)) = results.next().await {
        report.matched += 1;
        match result {
            Ok(done) => {
                report.done += 1;
                if !screen.json {
                    screen.line(format_args!("{id} {done}"))?;
                }
            }
            Err(error) => report.failed.push((id, error)),
        }
    }
    // For a single task, its error says more than a summary.
    if let ([(_, error)], 1, false) = (&report.failed[..], report.matched, screen.json) {
        return Err(error.clone().into());
    }
    conclude(operation, &report, true, screen)
}

async fn run_by_filter(
    operation: Operation<'_>,
    args: &BulkArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let now = queue.now();
    let mut filter = args.filter.to_filter(now);
    if filter.statuses.is_empty() {
        filter.statuses = operation.statuses().to_vec();
    }
    let preview = count(operation, queue, &filter, now, screen).await?;
    if preview.total == 0 {
        return Err(Error::NothingMatched.into());
    }
    if args.dry_run {
        return preview.print(operation, screen);
    }
    if !args.yes {
        let question = format!("{} {}", preview.sentence(), operation.question());
        if !screen.can_ask() {
            return Err(Failure::bad_input(format!(
                "{} Nothing was changed: confirmation needs a terminal",
                preview.sentence()
            ))
            .hint("--yes skips the confirmation, --dry-run only counts the tasks"));
        }
        if !screen.confirm(&question)? {
            return Err(Failure::new(
                FailureKind::Interrupted,
                "nothing was changed",
            ));
        }
    }
    let progress = Progress::new(screen, operation.name(), Some(preview.total));
    let report = operation
        .all(queue, filter, |report| progress.set(report.matched))
        .await;
    drop(progress);
    conclude(operation, &report, false, screen)
}

async fn count(
    operation: Operation<'_>,
    queue: &Queue,
    filter: &TaskFilter,
    now: Timestamp,
    screen: &Screen,
) -> Result<Preview, Failure> {
    let progress = Progress::new(screen, "counting", None);
    let mut preview = Preview::default();
    let mut tasks = std::pin::pin!(queue.list_all(filter.clone()));
    while let Some(task) = tasks.try_next().await? {
        if operation.applies_to(&task, now) {
            preview.add(&task);
            progress.set(preview.total);
        }
    }
    Ok(preview)
}

/// The tasks that an operation would change, counted by status.
#[derive(Debug, Default)]
struct Preview {
    total: u64,
    statuses: BTreeMap<Status, u64>,
}

impl Preview {
    fn add(&mut self, task: &Task) {
        self.total += 1;
        *self.statuses.entry(task.status).or_default() += 1;
    }

    /// `17 tasks match: 12 failed, 5 completed.`
    fn sentence(&self) -> String {
        let verb = if self.total == 1 { "matches" } else { "match" };
        let parts: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{} {status}", text::grouped(*count)))
            .collect();
        format!(
            "{} {verb}: {}.",
            text::count(self.total, "task"),
            parts.join(", ")
        )
    }

    fn print(&self, operation: Operation<'_>, screen: &mut Screen) -> Result<(), Failure> {
        if screen.json {
            return screen.json(&ReportView {
                operation: operation.json_name(),
                dry_run: true,
                matched: self.total,
                statuses: Some(
                    self.statuses
                        .iter()
                        .map(|(status, count)| (status.as_str(), *count))
                        .collect(),
                ),
                done: 0,
                failed: Vec::new(),
                stopped: None,
            });
        }
        screen.line(format_args!("{} Nothing was changed.", self.sentence()))?;
        Ok(())
    }
}

/// The report as `--json` shows it.
#[derive(Debug, Serialize)]
struct ReportView {
    operation: &'static str,
    dry_run: bool,
    matched: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    statuses: Option<BTreeMap<&'static str, u64>>,
    done: u64,
    failed: Vec<FailedView>,
    stopped: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct FailedView {
    id: TaskId,
    error: serde_json::Value,
}

/// Prints the report. Failures of one kind give the exit code of that kind, failures of several kinds the general one.
fn conclude(
    operation: Operation<'_>,
    report: &BulkReport,
    by_ids: bool,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let failures: Vec<(TaskId, Failure)> = report
        .failed
        .iter()
        .map(|(id, error)| (*id, error.clone().into()))
        .collect();
    if screen.json {
        screen.json(&ReportView {
            operation: operation.json_name(),
            dry_run: false,
            matched: report.matched,
            statuses: None,
            done: report.done,
            failed: failures
                .iter()
                .map(|(id, failure)| FailedView {
                    id: *id,
                    error: failure.to_json_body(),
                })
                .collect(),
            stopped: report
                .stopped
                .clone()
                .map(|error| Failure::from(error).to_json_body()),
        })?;
    } else {
        for (id, failure) in failures.iter().take(FAILURES_PRINTED_MAX) {
            let id = screen.paint_notes.paint(RED, &id.to_string());
            screen.note(format_args!("{id} {failure}"));
        }
        if failures.len() > FAILURES_PRINTED_MAX {
            let more = failures.len() - FAILURES_PRINTED_MAX;
            screen.note(format_args!("… and {more} more; --json prints all of them"));
        }
        let done = text::count(report.done, "task");
        let summary = screen
            .paint_notes
            .paint(BOLD, &format!("{done} {}", operation.done()));
        // A single task selected by id has been reported already.
        if report.matched > 1 || !by_ids {
            screen.note(summary);
        }
    }
    if let Some(error) = &report.stopped {
        return Err(error.clone().into());
    }
    let Some((_, first)) = failures.first() else {
        return Ok(());
    };
    let kind = if failures
        .iter()
        .all(|(_, failure)| failure.kind == first.kind)
    {
        first.kind
    } else {
        FailureKind::Other
    };
    let failed = text::count(failures.len() as u64, "task");
    let matched = text::grouped(report.matched);
    Err(Failure::new(
        kind,
        format!("{failed} of {matched} could not be {}", operation.done()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_printed_as_a_sentence() {
        let preview = Preview {
            total: 1_217,
            statuses: [(Status::Completed, 5), (Status::Failed, 1_212)].into(),
        };
        assert_eq!(
            preview.sentence(),
            "1,217 tasks match: 5 completed, 1,212 failed."
        );
        let preview = Preview {
            total: 1,
            statuses: [(Status::Failed, 1)].into(),
        };
        assert_eq!(preview.sentence(), "1 task matches: 1 failed.");
    }
}
