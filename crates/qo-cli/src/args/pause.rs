//! `qo pause` and `qo resume`.

use clap::Args;
use qo::QueueName;

/// What `qo pause` takes.
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

/// What `qo resume` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo resume mail")]
pub struct ResumeArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
}
