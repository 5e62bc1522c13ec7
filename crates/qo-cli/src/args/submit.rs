//! `qo submit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use qo::{
    IdempotencyScope, KeyHold, OnConflict, OnFailure, RetryPolicy, Tag, TaskId, TaskType, Timestamp,
};

use super::values;

/// Arguments of `qo submit`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo submit --type send_email --input '{\"to\": \"ada@example.org\"}'
  qo submit --type resize --input @photo.json --queue images --priority 1 --retries 5
  date | jq -R . | qo submit --type log --input -
  qo submit --type report --delay 1h30m --expires-in 1d --tag monthly
  qo submit --type report --input 7 --wait --wait-timeout 5m
  qo submit --type sync_account --input '{\"plan\": \"pro\"}' --ordering-key account-17 --on-failure stop
  qo submit --type charge --input 17 --limit-key stripe
  qo submit --type import --input '\"a.csv\"' --queue imports --group acme
  qo submit --type send_email --many addresses.jsonl
  qo submit --many - --full < tasks.jsonl
  qo submit --wasi wordcount.wasm --stdin book.txt --tag books

With --many, each line is the JSON input of one task. With --many --full, each line is an object with the fields \"type\" (or --type), \"input\", \"id\", \"queue\", \
\"priority\", \"delay\" or \"at\", \"expires_in\" or \"expires_at\", \"timeout\", \"retries\", \"retry_policy\", \"tags\", \"idempotency_key\", \"idempotency_scope\", \
\"idempotency_window\", \"idempotency_hold\", \"on_conflict\", \"ordering_key\", \"on_failure\", \"limit_key\", \"group\". The flags set the defaults of missing fields. Lines that fail are reported by number; the other lines are \
submitted, and the exit code is not 0. Empty lines are skipped.

Durations look like 30s, 5m or 1h30m; a plain number means seconds.")]
pub struct SubmitArgs {
    /// The task.
    #[command(flatten)]
    pub task: TaskArgs,
    /// Batch submission.
    #[command(flatten)]
    pub many: ManyArgs,
    /// A WASI job.
    #[command(flatten)]
    pub wasi: WasiJobArgs,
    /// Wait until the task finishes and print its output
    #[arg(long, conflicts_with = "many")]
    pub wait: bool,
    /// Stop waiting after this time; the task itself continues
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = values::duration)]
    pub wait_timeout: Option<Duration>,
    /// Retry delays.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// A WASI job.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "WASI jobs")]
pub struct WasiJobArgs {
    /// Submit a job that runs this WASI program: a file, or the address of a stored blob
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["task_type", "input", "many"])]
    pub wasi: Option<PathBuf>,
    /// Standard input of the program: a file, or - [default: empty]
    #[arg(long, value_name = "FILE", requires = "wasi")]
    pub stdin: Option<PathBuf>,
    /// Argument of the program; repeatable
    #[arg(
        long,
        value_name = "TEXT",
        requires = "wasi",
        allow_hyphen_values = true
    )]
    pub arg: Vec<String>,
}

/// Batch submission.
#[derive(Debug, Clone, Args)]
pub struct ManyArgs {
    /// Submit one task per line of this file, or of standard input (-)
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        conflicts_with_all = ["input", "id"]
    )]
    pub many: Option<PathBuf>,
    /// With --many: each line is an object with the fields of a task, not just its input
    #[arg(long, requires = "many")]
    pub full: bool,
}

/// The fields of a task.
#[derive(Debug, Clone, Args)]
pub struct TaskArgs {
    /// Task type; selects the handler
    #[arg(
        long = "type",
        short = 't',
        value_name = "TYPE",
        required_unless_present_any = ["full", "wasi"]
    )]
    pub task_type: Option<TaskType>,
    /// Input: JSON, @FILE, or - for standard input [default: null]
    #[arg(long, short = 'i', value_name = "JSON", allow_hyphen_values = true)]
    pub input: Option<String>,
    /// Queue [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Priority from 0 to 9; lower runs first [default: 5]
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: Option<u8>,
    /// Do not run before this much time has passed
    #[arg(long, value_name = "DURATION", value_parser = values::duration, conflicts_with = "at")]
    pub delay: Option<Duration>,
    /// Do not run before this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::timestamp)]
    pub at: Option<Timestamp>,
    /// Cancel the task if it has not started within this time
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration, conflicts_with = "expires_at")]
    pub expires_in: Option<Duration>,
    /// Cancel the task if it has not started by this time
    #[arg(long, value_name = "TIME", value_parser = values::timestamp)]
    pub expires_at: Option<Timestamp>,
    /// Time limit of each attempt [default: the queue's, or 5m]
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub timeout: Option<Duration>,
    /// Maximum number of retries [default: the queue's, or 3]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Tag to filter by; repeatable
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<Tag>,
    /// Task id [default: a generated UUID that contains the current time]
    #[arg(long, value_name = "UUID")]
    pub id: Option<TaskId>,
    /// Key that identifies this submission; a second one with the same key adds no task
    #[arg(long, value_name = "KEY", help_heading = "Idempotency")]
    pub idempotency_key: Option<String>,
    /// Where the key must be unique: queue, type (within the queue) or global [default: queue]
    #[arg(long, value_name = "SCOPE", requires = "idempotency_key", value_parser = scope, help_heading = "Idempotency")]
    pub idempotency_scope: Option<IdempotencyScope>,
    /// How long the key is valid [default: as long as the task exists]
    #[arg(long, value_name = "DURATION", requires = "idempotency_key", value_parser = values::positive_duration, help_heading = "Idempotency")]
    pub idempotency_window: Option<Duration>,
    /// How long the task holds the key: kept (while it is stored), unfinished (until it finishes) or waiting (until it starts) [default: kept]
    #[arg(long, value_name = "HOLD", requires = "idempotency_key", value_parser = hold, help_heading = "Idempotency")]
    pub idempotency_hold: Option<KeyHold>,
    /// What happens to a waiting task that holds the key: keep, replace its input, postpone by --delay, or replace-and-postpone [default: keep]
    #[arg(long, value_name = "POLICY", requires = "idempotency_key", value_parser = on_conflict, help_heading = "Idempotency")]
    pub on_conflict: Option<OnConflict>,
    /// Tasks of one queue with the same key run one at a time, in submit order
    #[arg(long, value_name = "KEY", help_heading = "Ordering")]
    pub ordering_key: Option<String>,
    /// If the task fails permanently: continue with the next task of the key, or stop until it is replayed or cancelled [default: continue]
    #[arg(long, value_name = "POLICY", requires = "ordering_key", value_parser = on_failure, help_heading = "Ordering")]
    pub on_failure: Option<OnFailure>,
    /// Key of the limits that apply to the task (`qo limit`), such as a tenant or an API account
    #[arg(long, value_name = "KEY", help_heading = "Limits")]
    pub limit_key: Option<String>,
    /// Group of the task, such as a tenant: the groups of a queue are served in turn
    #[arg(long, value_name = "GROUP", help_heading = "Fairness")]
    pub group: Option<String>,
}

/// Retry delays.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Retries")]
pub struct PolicyArgs {
    /// Delay before the first retry [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub retry_initial: Option<Duration>,
    /// Maximum delay [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub retry_max: Option<Duration>,
    /// Factor by which each delay grows [default: 2]
    #[arg(long, value_name = "FACTOR")]
    pub retry_multiplier: Option<f64>,
    /// Random variation of each delay, as a fraction from 0 to 1 [default: 0.25]
    #[arg(long, value_name = "FRACTION")]
    pub retry_jitter: Option<f64>,
}

impl PolicyArgs {
    /// The retry policy, if one of the delays is given.
    pub fn policy(&self) -> Option<RetryPolicy> {
        let Self {
            retry_initial,
            retry_max,
            retry_multiplier,
            retry_jitter,
        } = self;
        if retry_initial.is_none()
            && retry_max.is_none()
            && retry_multiplier.is_none()
            && retry_jitter.is_none()
        {
            return None;
        }
        let millis = |duration: &Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let base = RetryPolicy::default();
        let initial_interval_ms = retry_initial
            .as_ref()
            .map_or(base.initial_interval_ms, millis);
        Some(RetryPolicy {
            initial_interval_ms,
            // An initial delay above the default maximum raises the maximum.
            max_interval_ms: retry_max
                .as_ref()
                .map_or(base.max_interval_ms.max(initial_interval_ms), millis),
            multiplier: retry_multiplier.unwrap_or(base.multiplier),
            jitter_percent: retry_jitter.unwrap_or(base.jitter_percent),
            ..base
        })
    }
}

/// Parses `continue` or `stop`.
pub fn on_failure(text: &str) -> Result<OnFailure, String> {
    match text {
        "continue" => Ok(OnFailure::Continue),
        "stop" => Ok(OnFailure::Stop),
        _ => Err("expected continue or stop".to_owned()),
    }
}

/// Parses how long a task holds its key.
pub fn hold(text: &str) -> Result<KeyHold, String> {
    let found = KeyHold::ALL.into_iter().find(|hold| hold.as_str() == text);
    found.ok_or_else(|| "expected kept, unfinished or waiting".to_owned())
}

/// Parses what happens to a waiting task that holds the key, with hyphens or underscores.
pub fn on_conflict(text: &str) -> Result<OnConflict, String> {
    let text = text.replace('-', "_");
    let mut all = OnConflict::ALL.into_iter();
    let found = all.find(|policy| policy.as_str() == text);
    found.ok_or_else(|| "expected keep, replace, postpone or replace-and-postpone".to_owned())
}

/// Parses `queue`, `type` or `global`.
pub fn scope(text: &str) -> Result<IdempotencyScope, String> {
    match text {
        "queue" => Ok(IdempotencyScope::Queue),
        "type" => Ok(IdempotencyScope::Type),
        "global" => Ok(IdempotencyScope::Global),
        _ => Err("expected queue, type or global".to_owned()),
    }
}
