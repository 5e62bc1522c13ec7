//! `qo top`.

use std::time::Duration;

use clap::Args;

use super::values;

/// Arguments of `qo top`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo top
  qo top --interval 1
  qo top --queue mail
  qo top --once --json | jq '.queues[] | select(.failed_per_minute > 0)'

On a terminal, the arrow keys select a queue or a failure: p pauses or resumes the queue, r replays the failure, a archives it, and q quits.

Rates are the differences between two counts, so the first view takes one interval. In direct mode each count reads every task that is not
known yet, which costs requests: use a longer interval on a large bucket.")]
pub struct TopArgs {
    /// Time between two views [default: 2 for local stores, 5 for others]
    #[arg(long, value_name = "SECONDS", value_parser = values::watch_interval)]
    pub interval: Option<Duration>,
    /// Show one view and exit
    #[arg(long)]
    pub once: bool,
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<qo::QueueName>,
}
