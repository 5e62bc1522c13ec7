//! `qo replay`, `cancel`, `archive`, `unarchive` and `purge`: something is done with tasks, named by their ids or by what they have in common.
//!
//! With a filter the tasks are counted first, and somebody has to agree. There is no transaction around it: each task is changed on its
//! own, what fails is told, and running it again goes on where it stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use qo::{BulkReport, Error, Queue, Status, Task, TaskFilter, TaskId, Timestamp};
use serde::Serialize;

use crate::args::{ArchiveArgs, BulkArgs, CancelArgs, PurgeArgs, ReplayArgs, UnarchiveArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::progress::Progress;
use crate::output::style::{BOLD, RED};
use crate::output::{Screen, text};
use crate::session::Session;

/// How many tasks that are named by their ids are worked on at once.
const CONCURRENCY: usize = 16;
/// How many failures are told one by one; `--json` tells all.
const FAILURES_TOLD: usize = 20;

pub(super) async fn replay(args: &ReplayArgs, session: &mut Session) -> Result<(), Failure> {
    run(Work::Replay, &args.tasks, session).await
}

pub(super) async fn cancel(args: &CancelArgs, session: &mut Session) -> Result<(), Failure> {
    let reason = args.reason.as_deref();
    run(Work::Cancel { reason }, &args.tasks, session).await
}

pub(super) async fn archive(args: &ArchiveArgs, session: &mut Session) -> Result<(), Failure> {
    run(Work::Archive, &args.tasks, session).await
}

pub(super) async fn unarchive(args: &UnarchiveArgs, session: &mut Session) -> Result<(), Failure> {
    run(Work::Unarchive, &args.tasks, session).await
}

pub(super) async fn purge(args: &PurgeArgs, session: &mut Session) -> Result<(), Failure> {
    let older_than = args.older_than;
    let filter = &args.tasks.filter;
    let has_more = filter.queue.is_some()
        || filter.task_type.is_some()
        || filter.tag.is_some()
        || filter.shard.is_some()
        || filter.since.is_some();
    if older_than.is_some() && has_more {
        return Err(
            Failure::bad_input("--older-than goes together with --status only")
                .hint("archive the others first, and purge what is archived"),
        );
    }
    run(Work::Purge { older_than }, &args.tasks, session).await
}

/// What is done with the tasks.
#[derive(Debug, Clone, Copy)]
enum Work<'a> {
    Replay,
    Cancel { reason: Option<&'a str> },
    Archive,
    Unarchive,
    Purge { older_than: Option<Duration> },
}

impl Work<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Cancel { .. } => "cancel",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
            Self::Purge { .. } => "purge",
        }
    }

    /// What was done with a task.
    fn done(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Cancel { .. } => "cancelled",
            Self::Archive => "archived",
            Self::Unarchive => "unarchived",
            Self::Purge { .. } => "purged",
        }
    }

    /// The statuses in which it makes sense.
    fn statuses(self) -> &'static [Status] {
        match self {
            Self::Replay => &[Status::Failed],
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

    /// Whether a task that the filter matches is meant.
    fn means(self, task: &Task, now: Timestamp) -> bool {
        let Self::Purge {
            older_than: Some(age),
        } = self
        else {
            return true;
        };
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        task.completed_at.unwrap_or(task.updated_at) < now.minus_millis(age_ms)
    }

    /// Does it to one task.
    async fn one(self, queue: &Queue, id: TaskId) -> Result<&'static str, Error> {
        match self {
            Self::Replay => queue.replay(id).await.map(drop)?,
            Self::Cancel { reason } => {
                let task = queue.cancel(id, reason).await?;
                if task.status == Status::Running {
                    return Ok("asked its worker to stop");
                }
            }
            Self::Archive => queue.archive(id).await.map(drop)?,
            Self::Unarchive => queue.unarchive(id).await.map(drop)?,
            Self::Purge { .. } => queue.purge(id).await?,
        }
        Ok(self.done())
    }

    /// Does it to all that match.
    async fn all(
        self,
        queue: &Queue,
        filter: TaskFilter,
        progress: impl FnMut(&BulkReport),
    ) -> BulkReport {
        match self {
            Self::Replay => queue.replay_all(filter, progress).await,
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

async fn run(work: Work<'_>, args: &BulkArgs, session: &mut Session) -> Result<(), Failure> {
    let by_filter = !args.filter.is_empty()
        || args.all
        || matches!(
            work,
            Work::Purge {
                older_than: Some(_)
            }
        );
    if !args.ids.is_empty() && by_filter {
        return Err(Failure::bad_input("give ids or a filter, not both"));
    }
    if args.ids.is_empty() && !by_filter {
        return Err(Failure::bad_input(format!("which tasks? qo {} needs ids or a filter", work.name())).hint(
            format!(
                "`qo {0} ID…`, or `qo {0} --type TYPE`, `--queue QUEUE`, `--tag TAG`, `--since 2h`, or `--all`; `--dry-run` only counts",
                work.name()
            ),
        ));
    }
    let queue = session.connect().await?;
    let screen = &mut session.screen;
    let outcome = if by_filter {
        by_filter_run(work, args, &queue, screen).await
    } else {
        by_ids_run(work, args, &queue, screen).await
    };
    queue.close().await;
    outcome
}

async fn by_ids_run(
    work: Work<'_>,
    args: &BulkArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    if args.dry_run {
        let mut preview = Preview::default();
        for id in &args.ids {
            preview.add(&queue.get(*id).await?);
        }
        return preview.tell(work, screen);
    }
    let mut report = BulkReport::default();
    let mut results = futures_util::stream::iter(args.ids.iter().copied())
        .map(|id| async move { (id, work.one(queue, id).await) })
        .buffered(CONCURRENCY);
    while let Some((id, result)) = results.next().await {
        report.matched += 1;
        match result {
            Ok(did) => {
                report.done += 1;
                if !screen.json {
                    screen.line(format_args!("{id} {did}"))?;
                }
            }
            Err(error) => report.failed.push((id, error)),
        }
    }
    // One task that was named has one error, which says more than a summary.
    if let ([(_, error)], 1, false) = (&report.failed[..], report.matched, screen.json) {
        return Err(error.clone().into());
    }
    conclude(work, &report, true, screen)
}

async fn by_filter_run(
    work: Work<'_>,
    args: &BulkArgs,
    queue: &Queue,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let now = queue.now();
    let mut filter = args.filter.to_filter(now);
    if filter.statuses.is_empty() {
        filter.statuses = work.statuses().to_vec();
    }
    let preview = count(work, queue, &filter, now, screen).await?;
    if preview.total == 0 {
        return Err(Error::NothingMatched.into());
    }
    if args.dry_run {
        return preview.tell(work, screen);
    }
    if !args.yes {
        let question = format!("{} {} them?", preview.sentence(), capital(work.name()));
        if !screen.can_ask() {
            return Err(Failure::bad_input(format!(
                "{} Nothing was changed, because nobody can be asked",
                preview.sentence()
            ))
            .hint("--yes goes ahead without asking, --dry-run only counts"));
        }
        if !screen.confirm(&question)? {
            return Err(Failure::new(
                FailureKind::Interrupted,
                "nothing was changed",
            ));
        }
    }
    let progress = Progress::new(screen, work.name(), Some(preview.total));
    let report = work
        .all(queue, filter, |report| progress.set(report.matched))
        .await;
    drop(progress);
    conclude(work, &report, false, screen)
}

async fn count(
    work: Work<'_>,
    queue: &Queue,
    filter: &TaskFilter,
    now: Timestamp,
    screen: &Screen,
) -> Result<Preview, Failure> {
    let progress = Progress::new(screen, "counting", None);
    let mut preview = Preview::default();
    let mut tasks = std::pin::pin!(queue.list_all(filter.clone()));
    while let Some(task) = tasks.try_next().await? {
        if work.means(&task, now) {
            preview.add(&task);
            progress.set(preview.total);
        }
    }
    Ok(preview)
}

/// What would be worked on.
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

    fn tell(&self, work: Work<'_>, screen: &mut Screen) -> Result<(), Failure> {
        if screen.json {
            return screen.json(&ReportView {
                operation: work.name(),
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

/// Tells what came of it. Failures of one sort give its exit code; of several sorts, the general one.
fn conclude(
    work: Work<'_>,
    report: &BulkReport,
    named: bool,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let failures: Vec<(TaskId, Failure)> = report
        .failed
        .iter()
        .map(|(id, error)| (*id, error.clone().into()))
        .collect();
    if screen.json {
        screen.json(&ReportView {
            operation: work.name(),
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
        for (id, failure) in failures.iter().take(FAILURES_TOLD) {
            let id = screen.paint_notes.paint(RED, &id.to_string());
            screen.note(format_args!("{id} {failure}"));
        }
        if failures.len() > FAILURES_TOLD {
            let more = failures.len() - FAILURES_TOLD;
            screen.note(format_args!("… and {more} more; --json tells all"));
        }
        let done = text::count(report.done, "task");
        let summary = screen
            .paint_notes
            .paint(BOLD, &format!("{done} {}", work.done()));
        // A task that was named has its line already.
        if report.matched > 1 || !named {
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
        format!("{failed} of {matched} could not be {}", work.done()),
    ))
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_a_sentence() {
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
