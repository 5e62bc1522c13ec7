//! `qo schedule`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use qo::schedule::Overlap;
use qo::{FairnessGroup, LimitKey, OnFailure, OrderingKey, QueueName, Tag, TaskType, Timestamp};

use super::submit::{PolicyArgs, on_failure};
use super::values;

/// Arguments of `qo schedule`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo schedule add nightly --cron '30 2 * * *' --time-zone Europe/Berlin --type report
  qo schedule add poll --every 15m --type fetch --input '{\"feed\": 7}' --overlap skip
  qo schedule list
  qo schedule trigger nightly
  qo schedule backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-07T00:00:00Z")]
pub struct ScheduleArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ScheduleCommand,
}

/// The subcommands of `qo schedule`.
#[derive(Debug, Clone, Subcommand)]
pub enum ScheduleCommand {
    /// Add a schedule
    ///
    /// Fails if a schedule with this name has another definition, unless --replace is given. A new definition applies from now on.
    Add(Box<ScheduleAddArgs>),
    /// List schedules with their next and last runs
    List,
    /// Show one schedule
    Show(ScheduleNameArgs),
    /// Pause a schedule: no runs until it is resumed
    Pause(ScheduleNameArgs),
    /// Resume a paused schedule; the runs during the pause are skipped
    Resume(ScheduleNameArgs),
    /// Submit one task of a schedule now, even if it is paused
    Trigger(ScheduleNameArgs),
    /// Submit the tasks of a past range
    ///
    /// Submits a task for each tick of the range, whether it was fired before or not, up to 1,000. It can be repeated after an error:
    /// ticks of the same range that already have a task from a backfill get no second one.
    Backfill(ScheduleBackfillArgs),
    /// Remove a schedule; submitted tasks stay
    Remove(ScheduleNameArgs),
}

/// Arguments of the subcommands that take a name only.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo schedule show nightly
  qo schedule pause nightly
  qo schedule trigger nightly --json")]
pub struct ScheduleNameArgs {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Arguments of `qo schedule add`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo schedule add nightly --cron '30 2 * * *' --time-zone Europe/Berlin --type report
  qo schedule add heartbeat --cron '*/10 * * * * *' --type ping
  qo schedule add poll --every 15m --jitter 1m --type fetch --overlap skip
  qo schedule add sync-acme --every 1h --type sync --queue imports --group acme
  qo schedule add close-books --cron '@daily' --type book --ordering-key account-17 --on-failure stop
  qo schedule add launch --at 2027-01-01T00:00:00Z --at 2027-01-02T00:00:00Z --type announce

A cron line has five fields (minute, hour, day of month, month, day of week), or six with seconds first, or is an alias such as @daily. \
When clocks change, a fixed time that is skipped runs right after the gap, and one that occurs twice runs once.

Durations look like 30s, 5m or 1h30m; a plain number means seconds.")]
#[command(group = ArgGroup::new("rule").required(true))]
pub struct ScheduleAddArgs {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Cron line
    #[arg(long, value_name = "LINE", group = "rule")]
    pub cron: Option<String>,
    /// Time zone of the cron line, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub time_zone: Option<String>,
    /// Interval, counted from --start or from 1970
    #[arg(long, value_name = "DURATION", group = "rule", value_parser = values::positive_duration)]
    pub every: Option<Duration>,
    /// Time of a run; repeatable
    #[arg(long, value_name = "TIME", group = "rule", value_parser = values::timestamp)]
    pub at: Vec<Timestamp>,
    /// Task type
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    pub task_type: TaskType,
    /// Input: JSON, @FILE, or - for standard input [default: null]
    #[arg(long, short = 'i', value_name = "JSON", allow_hyphen_values = true)]
    pub input: Option<String>,
    /// Queue [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Priority from 0 to 9; lower runs first [default: 5]
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: Option<u8>,
    /// Cancel a task that has not started within this time
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub expires_in: Option<Duration>,
    /// Time limit of each attempt [default: the queue's, or 5m]
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub timeout: Option<Duration>,
    /// Maximum number of retries [default: the queue's, or 3]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Tag; repeatable. Tasks also get schedule:NAME
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<Tag>,
    /// Tasks of one queue with the same key run one at a time, in submit order
    #[arg(long, value_name = "KEY")]
    pub ordering_key: Option<OrderingKey>,
    /// If a task fails permanently: continue with the next task of the key, or stop until it is replayed or cancelled [default: continue]
    #[arg(long, value_name = "POLICY", requires = "ordering_key", value_parser = on_failure)]
    pub on_failure: Option<OnFailure>,
    /// Key of the limits that apply to the tasks (`qo limit`)
    #[arg(long, value_name = "KEY")]
    pub limit_key: Option<LimitKey>,
    /// Group of the tasks, such as a tenant: the groups of a queue are served in turn
    #[arg(long, value_name = "GROUP")]
    pub group: Option<FairnessGroup>,
    /// While an earlier task is unfinished: allow, skip, buffer-one or cancel-running [default: allow]
    #[arg(long, value_name = "POLICY", value_parser = overlap, help_heading = "Policies")]
    pub overlap: Option<Overlap>,
    /// How late a run may start after an outage; older ones count as missed; at least 1m [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration, help_heading = "Policies")]
    pub catch_up: Option<Duration>,
    /// Delay each task by a random time up to this
    #[arg(long, value_name = "DURATION", value_parser = values::duration, help_heading = "Policies")]
    pub jitter: Option<Duration>,
    /// No run before this time
    #[arg(long, value_name = "TIME", value_parser = values::timestamp, help_heading = "Policies")]
    pub start: Option<Timestamp>,
    /// No run after this time
    #[arg(long, value_name = "TIME", value_parser = values::timestamp, help_heading = "Policies")]
    pub end: Option<Timestamp>,
    /// Replace the definition of an existing schedule
    #[arg(long)]
    pub replace: bool,
    /// Retry delays
    #[command(flatten)]
    pub retry_delays: PolicyArgs,
}

/// Arguments of `qo schedule backfill`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo schedule backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-07T00:00:00Z")]
pub struct ScheduleBackfillArgs {
    /// Name of the schedule
    #[arg(value_name = "NAME")]
    pub name: String,
    /// First time of the range
    #[arg(long, value_name = "TIME", value_parser = values::timestamp)]
    pub from: Timestamp,
    /// Last time of the range, in the past
    #[arg(long, value_name = "TIME", value_parser = values::timestamp)]
    pub to: Timestamp,
}

/// Parses an overlap policy, with hyphens or underscores.
pub fn overlap(text: &str) -> Result<Overlap, String> {
    let text = text.replace('-', "_");
    let found = Overlap::ALL
        .into_iter()
        .find(|policy| policy.as_str() == text);
    found.ok_or_else(|| "expected allow, skip, buffer-one or cancel-running".to_owned())
}
