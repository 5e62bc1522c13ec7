//! `qo wait`.

use std::time::Duration;

use clap::Args;
use qo::TaskId;

use super::values;

/// Arguments of `qo wait`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo wait 550e8400-e29b-41d4-a716-446655440000
  qo wait 550e8400-e29b-41d4-a716-446655440000 --timeout 5m && echo done")]
pub struct WaitArgs {
    /// Task id
    pub id: TaskId,
    /// Stop waiting after this time; the task itself continues
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub timeout: Option<Duration>,
}
