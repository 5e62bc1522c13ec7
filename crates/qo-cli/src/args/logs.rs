//! `qo logs`.

use clap::Args;
use qo::TaskId;

/// Arguments of `qo logs`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo logs 550e8400-e29b-41d4-a716-446655440000
  qo logs 550e8400-e29b-41d4-a716-446655440000 --attempt 2
  qo logs 550e8400-e29b-41d4-a716-446655440000 --json | jq -r .text")]
pub struct LogsArgs {
    /// Task id
    pub id: TaskId,
    /// Only the log of this attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
}
