//! `qo replay`, `redrive`, `run-now`, `cancel`, `archive`, `unarchive` and `purge`: operations on tasks selected by ids or by a filter.
//!
//! With a filter, the command counts the matching tasks first and asks for confirmation. There is no transaction: each task is
//! changed separately and failures are reported. Running the command again continues with the remaining tasks.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt};
use qo::{BulkOperation, BulkReport, BulkRequest, Error, Queue, Status, Task, TaskId, Timestamp};
use serde::Serialize;

use crate::args::{
    ArchiveArgs, BulkArgs, CancelArgs, PurgeArgs, RedriveArgs, ReplayArgs, RunNowArgs,
    UnarchiveArgs,
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
    let request = BulkRequest::new(BulkOperation::Replay);
    run(request, &args.tasks, session).await
}

pub(super) async fn run_now(args: &RunNowArgs, session: &mut Session) -> Result<(), Failure> {
    let request = BulkRequest::new(BulkOperation::RunNow);
    run(request, &args.tasks, session).await
}

pub(super) async fn redrive(args: &RedriveArgs, session: &mut Session) -> Result<(), Failure> {
    run(BulkRequest::redrive(args.to.clone()), &args.tasks, session).await
}

pub(super) async fn cancel(args: &CancelArgs, session: &mut Session) -> Result<(), Failure> {
    let mut request = BulkRequest::new(BulkOperation::Cancel);
    request.reason.clone_from(&args.reason);
    run(request, &args.tasks, session).await
}

pub(super) async fn archive(args: &ArchiveArgs, session: &mut Session) -> Result<(), Failure> {
    let request = BulkRequest::new(BulkOperation::Archive);
    run(request, &args.tasks, session).await
}

pub(super) async fn unarchive(args: &UnarchiveArgs, session: &mut Session) -> Result<(), Failure> {
    let request = BulkRequest::new(BulkOperation::Unarchive);
    run(request, &args.tasks, session).await
}

pub(super) async fn purge(args: &PurgeArgs, session: &mut Session) -> Result<(), Failure> {
    let filter = &args.tasks.filter;
    let has_other_conditions = filter.queue.is_some()
        || filter.task_type.is_some()
        || filter.tag.is_some()
        || filter.shard.is_some()
        || filter.since.is_some()
        || filter.until.is_some()
        || filter.text.is_some()
        || filter.search.is_some();
    if args.older_than.is_some() && has_other_conditions {
        return Err(
            Failure::bad_input("--older-than can be combined with --status only")
                .hint("archive the tasks first, then purge the archived ones"),
        );
    }
    let mut request = BulkRequest::new(BulkOperation::Purge);
    request.older_than = args.older_than;
    run(request, &args.tasks, session).await
}

/// The name of the command.
fn command_name(operation: BulkOperation) -> String {
    operation.name().replace('_', "-")
}

/// The question that asks for confirmation.
fn question(operation: BulkOperation) -> &'static str {
    match operation {
        BulkOperation::Replay => "Replay them?",
        BulkOperation::Redrive => "Move them?",
        BulkOperation::RunNow => "Run them now?",
        BulkOperation::Cancel => "Cancel them?",
        BulkOperation::Archive => "Archive them?",
        BulkOperation::Unarchive => "Unarchive them?",
        BulkOperation::Purge => "Purge them?",
    }
}

/// The participle for a changed task.
fn participle(operation: BulkOperation) -> &'static str {
    match operation {
        BulkOperation::Replay => "replayed",
        BulkOperation::Redrive => "moved",
        BulkOperation::RunNow => "made due",
        BulkOperation::Cancel => "cancelled",
        BulkOperation::Archive => "archived",
        BulkOperation::Unarchive => "unarchived",
        BulkOperation::Purge => "purged",
    }
}

/// Changes one task. Returns what was done.
async fn change(request: &BulkRequest, queue: &Queue, id: TaskId) -> Result<&'static str, Error> {
    let task = queue.bulk_one(request, id).await?;
    let is_requested = request.operation == BulkOperation::Cancel
        && task.is_some_and(|task| task.status == Status::Running);
    Ok(if is_requested {
        "cancel requested"
    } else {
        participle(request.operation)
    })
}

async fn run(
    mut request: BulkRequest,
    args: &BulkArgs,
    session: &mut Session,
) -> Result<(), Failure> {
    let by_filter = !args.filter.is_empty() || args.all || request.older_than.is_some();
    if !args.ids.is_empty() && by_filter {
        return Err(Failure::bad_input("use either ids or a filter, not both"));
    }
    if args.ids.is_empty() && !by_filter {
        let command = command_name(request.operation);
        return Err(Failure::bad_input(format!("qo {command} needs task ids or a filter")).hint(
            format!(
                "use `qo {command} ID...`, or a filter: --type TYPE, --queue QUEUE, --tag TAG, --since 2h or --all; --dry-run only counts the tasks"
            ),
        ));
    }
    request.actor = session.actor();
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    let result = if by_filter {
        run_by_filter(request, args, &queue, screen).await
    } else {
        run_by_ids(&request, args, &queue, screen).await
    };
    queue.close().await;
    result
}

async fn run_by_ids(
    request: &BulkRequest,
    args: &BulkArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if args.dry_run {
        let mut preview = Preview::default();
        for id in &args.ids {
            preview.add(&queue.get(*id).await?);
        }
        return preview.print(request.operation, screen);
    }
    let mut report = BulkReport::default();
    let mut results = futures_util::stream::iter(args.ids.iter().copied())
        .map(|id| async move { (id, change(request, queue, id).await) })
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
    conclude(request.operation, &report, true, screen)
}

async fn run_by_filter(
    request: BulkRequest,
    args: &BulkArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let now = queue.now();
    let request = request.with_filter(args.filter.to_filter(now));
    let operation = request.operation;
    let preview = count(&request, queue, now, screen).await?;
    if preview.total == 0 {
        return Err(Error::NothingMatched.into());
    }
    if args.dry_run {
        return preview.print(operation, screen);
    }
    if !args.yes {
        let question = format!("{} {}", preview.sentence(), question(operation));
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
    let progress = Progress::new(screen, &command_name(operation), Some(preview.total));
    let report = queue
        .bulk(&request, |report| progress.set(report.matched))
        .await;
    drop(progress);
    conclude(operation, &report, false, screen)
}

async fn count(
    request: &BulkRequest,
    queue: &Queue,
    now: Timestamp,
    screen: &Screen,
) -> Result<Preview, Failure> {
    let progress = Progress::new(screen, "counting", None);
    let mut preview = Preview::default();
    let mut tasks = std::pin::pin!(queue.list_all(request.filter.clone()));
    while let Some(task) = tasks.try_next().await? {
        if request.applies_to(&task, now) {
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

    fn print(&self, operation: BulkOperation, screen: &mut Screen) -> Result<(), Failure> {
        if screen.json {
            return screen.json(&ReportView {
                operation: operation.name(),
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
    operation: BulkOperation,
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
            operation: operation.name(),
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
            .paint(BOLD, &format!("{done} {}", participle(operation)));
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
        format!(
            "{failed} of {matched} could not be {}",
            participle(operation)
        ),
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
