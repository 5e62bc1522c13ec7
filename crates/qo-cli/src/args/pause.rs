//! `qo pause` and `qo resume`.

use clap::Args;
use qo::{PauseTarget, QueueName, TaskType};

/// Arguments of `qo pause`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo pause mail
  qo pause mail --reason 'the provider is down'
  qo pause --type send_email
  qo stats          shows what is paused, since when, by whom and why
  qo resume mail")]
pub struct PauseArgs {
    /// What is paused or resumed.
    #[command(flatten)]
    pub target: PauseTargetArgs,
    /// Reason, shown by `qo stats` and the dashboard
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Arguments of `qo resume`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo resume mail
  qo resume --type send_email")]
pub struct ResumeArgs {
    /// What is paused or resumed.
    #[command(flatten)]
    pub target: PauseTargetArgs,
}

/// What is paused or resumed.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct PauseTargetArgs {
    /// Queue name
    #[arg(value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Task type, in all queues
    #[arg(long = "type", value_name = "TYPE")]
    pub task_type: Option<TaskType>,
}

impl PauseTargetArgs {
    /// The queue or the type.
    pub fn target(&self) -> Option<PauseTarget> {
        let queue = self.queue.clone().map(PauseTarget::Queue);
        queue.or_else(|| self.task_type.clone().map(PauseTarget::Type))
    }
}
