//! `qo queue`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use qo::{FairnessGroup, GROUP_WEIGHT_MAX, QueueName};

use super::values;

/// Arguments of `qo queue`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo queue set mail --retries 8 --timeout 30s --max-waiting 10000
  qo queue list
  qo queue show mail")]
pub struct QueueArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: QueueCommand,
}

/// The subcommands of `qo queue`.
#[derive(Debug, Clone, Subcommand)]
pub enum QueueCommand {
    /// List the queues that have tasks or settings
    List,
    /// Show the settings of a queue
    Show(QueueShowArgs),
    /// Change settings of a queue; the others stay
    ///
    /// A change applies to tasks that are submitted later; in direct mode, other processes see it within ten seconds. Waiting tasks keep the
    /// settings that they were submitted with, except that in broker and cluster mode the weights of groups apply to them too. In
    /// direct mode and with `?engine=json`, the retention also applies to tasks that have already finished.
    Set(QueueSetArgs),
}

/// Arguments of `qo queue show`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo queue show mail --json")]
pub struct QueueShowArgs {
    /// Queue name
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
}

/// Arguments of `qo queue set`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo queue set mail --retries 8 --timeout 30s
  qo queue set quotes --max-wait 10s --retention 1h
  qo queue set imports --max-waiting 10000
  qo queue set imports --weight big-tenant=3 --weight trial=1
  qo queue set imports --unset max-waiting
  qo queue set imports --clear

Durations look like 30s, 5m or 1h30m; a plain number means seconds.")]
pub struct QueueSetArgs {
    /// Queue name
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
    /// Default maximum number of retries of a task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub retries: Option<u32>,
    /// Default time limit of each attempt
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub timeout: Option<Duration>,
    /// How long finished tasks are kept
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub retention: Option<Duration>,
    /// How long a task may wait after it becomes due; then it fails
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub max_wait: Option<Duration>,
    /// How many tasks may wait; further submits are rejected with exit code 10
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub max_waiting: Option<u64>,
    /// Turns of a group per round, 1 to 1000; repeatable. Groups without a weight get one turn
    #[arg(long, value_name = "GROUP=N", value_parser = group_weight)]
    pub weight: Vec<(FairnessGroup, u32)>,
    /// Setting to remove; repeatable
    #[arg(long, value_name = "SETTING", value_enum)]
    pub unset: Vec<QueueSetting>,
    /// Remove all other settings
    #[arg(long)]
    pub clear: bool,
}

/// A setting of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QueueSetting {
    /// --retries
    Retries,
    /// --timeout
    Timeout,
    /// --retention
    Retention,
    /// --max-wait
    MaxWait,
    /// --max-waiting
    MaxWaiting,
    /// --weight, of all groups
    Weights,
}

fn group_weight(text: &str) -> Result<(FairnessGroup, u32), String> {
    let (group, weight) = text
        .split_once('=')
        .ok_or("expected a group and its turns per round, such as big-tenant=3")?;
    let group = group
        .parse::<FairnessGroup>()
        .map_err(|error| error.to_string())?;
    let weight = weight.parse().ok();
    let weight = weight.filter(|weight| (1..=GROUP_WEIGHT_MAX).contains(weight));
    let weight = weight.ok_or(format!("the weight must be 1 to {GROUP_WEIGHT_MAX}"))?;
    Ok((group, weight))
}
