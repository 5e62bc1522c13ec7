//! `qo pause` and `qo resume`.

use clap::Args;
use qo::QueueName;

/// Lets workers pass a queue by. Tasks can still be submitted to it, and running ones end as usual.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo pause mail
  qo stats          shows which queues are paused
  qo resume mail")]
pub struct PauseArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
}

/// Lets workers serve a paused queue again.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo resume mail")]
pub struct ResumeArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
}
