//! `qo wait`.

use std::time::Duration;

use clap::Args;
use qo::TaskId;

use super::values;

/// What `qo wait` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo wait 550e8400-e29b-41d4-a716-446655440000
  qo wait 550e8400-e29b-41d4-a716-446655440000 --timeout 5m && echo done")]
pub struct WaitArgs {
    /// The task
    pub id: TaskId,
    /// Give up after so long; the task goes on
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub timeout: Option<Duration>,
}
