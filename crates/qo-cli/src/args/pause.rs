//! `qo pause` and `qo resume`.

use clap::Args;
use qo::QueueName;

/// Arguments of `qo pause`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo pause mail
  qo stats          shows which queues are paused
  qo resume mail")]
pub struct PauseArgs {
    /// Queue name
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
}

/// Arguments of `qo resume`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo resume mail")]
pub struct ResumeArgs {
    /// Queue name
    #[arg(value_name = "QUEUE")]
    pub queue: QueueName,
}
