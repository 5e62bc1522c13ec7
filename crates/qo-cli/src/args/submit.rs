//! `qo submit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use qo::{IdempotencyScope, Tag, TaskId, TaskType, Timestamp};

use super::values;

/// What `qo submit` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo submit --type send_email --input '{\"to\": \"ada@example.org\"}'
  qo submit --type resize --input @photo.json --queue images --priority 1 --retries 5
  date | jq -R . | qo submit --type log --input -
  qo submit --type report --delay 1h30m --expires-in 1d --tag monthly
  qo submit --type report --input 7 --wait --wait-timeout 5m
  qo submit --type send_email --many addresses.jsonl
  qo submit --many - --full < tasks.jsonl

With --many each line is the input of a task. With --many and --full each line is an object: \"type\" (or --type), and \"input\", \"id\", \"queue\", \
\"priority\", \"delay\" or \"at\", \"expires_in\" or \"expires_at\", \"timeout\", \"retries\", \"retry_policy\", \"tags\", \"idempotency_key\", \"idempotency_scope\", \
\"idempotency_window\"; what a line leaves out is as the flags say. Lines that fail are named by their number, the others are submitted, and \
the exit code is not 0. Empty lines are passed by.

Durations are written like 30s, 5m, 1h30m, or as seconds.")]
pub struct SubmitArgs {
    /// What the task is.
    #[command(flatten)]
    pub task: TaskArgs,
    /// Many at once.
    #[command(flatten)]
    pub many: ManyArgs,
    /// Wait for the task's end and print its output
    #[arg(long, conflicts_with = "many")]
    pub wait: bool,
    /// Give up waiting after so long; the task goes on
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = values::duration)]
    pub wait_timeout: Option<Duration>,
    /// How long it waits before a retry.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Many at once.
#[derive(Debug, Clone, Args)]
pub struct ManyArgs {
    /// Submit a task for each line of a file, or of standard input (-)
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        conflicts_with_all = ["input", "id"]
    )]
    pub many: Option<PathBuf>,
    /// Each line of --many is an object with the fields of a task, not just its input
    #[arg(long, requires = "many")]
    pub full: bool,
}

/// What the task is.
#[derive(Debug, Clone, Args)]
pub struct TaskArgs {
    /// The kind of work; selects the handler
    #[arg(
        long = "type",
        short = 't',
        value_name = "TYPE",
        required_unless_present = "full"
    )]
    pub task_type: Option<TaskType>,
    /// What to work on: JSON, @FILE, or - for standard input; null if not said
    #[arg(long, short = 'i', value_name = "JSON", allow_hyphen_values = true)]
    pub input: Option<String>,
    /// The queue to wait in
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// 0 to 9, lower first; 5 if not said
    #[arg(long, value_name = "0-9", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: Option<u8>,
    /// Not to be claimed before so long from now
    #[arg(long, value_name = "DURATION", value_parser = values::duration, conflicts_with = "at")]
    pub delay: Option<Duration>,
    /// Not to be claimed before this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::timestamp)]
    pub at: Option<Timestamp>,
    /// Cancelled instead of claimed after so long from now
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration, conflicts_with = "expires_at")]
    pub expires_in: Option<Duration>,
    /// Cancelled instead of claimed from this time on
    #[arg(long, value_name = "TIME", value_parser = values::timestamp)]
    pub expires_at: Option<Timestamp>,
    /// The longest time that an attempt may take; 5 minutes if not said
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub timeout: Option<Duration>,
    /// How often it may be retried; 3 if not said
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// A word to find it by; can be given several times
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<Tag>,
    /// Its own id, a UUID; a new one if not said
    #[arg(long, value_name = "UUID")]
    pub id: Option<TaskId>,
    /// What makes another submit the same as this one
    #[arg(long, value_name = "KEY", help_heading = "Idempotency")]
    pub idempotency_key: Option<String>,
    /// Among which tasks the key must be unique: those of the queue, those of the type in the queue, or all
    #[arg(long, value_name = "SCOPE", requires = "idempotency_key", value_parser = scope, help_heading = "Idempotency")]
    pub idempotency_scope: Option<IdempotencyScope>,
    /// How long the key holds; as long as the task is kept, if not said
    #[arg(long, value_name = "DURATION", requires = "idempotency_key", value_parser = values::positive_duration, help_heading = "Idempotency")]
    pub idempotency_window: Option<Duration>,
}

/// How long it waits before a retry.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Retries")]
pub struct PolicyArgs {
    /// The wait before the first retry; 1 s if not said
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub retry_initial: Option<Duration>,
    /// The longest wait; 1 minute if not said
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub retry_max: Option<Duration>,
    /// How much longer each wait is than the one before; 2 if not said
    #[arg(long, value_name = "FACTOR")]
    pub retry_multiplier: Option<f64>,
    /// How far a wait may be off, as a part of itself from 0 to 1; 0.25 if not said
    #[arg(long, value_name = "PART")]
    pub retry_jitter: Option<f64>,
}

/// `queue`, `type` or `global`.
pub fn scope(text: &str) -> Result<IdempotencyScope, String> {
    match text {
        "queue" => Ok(IdempotencyScope::Queue),
        "type" => Ok(IdempotencyScope::Type),
        "global" => Ok(IdempotencyScope::Global),
        _ => Err("use queue, type or global".to_owned()),
    }
}
