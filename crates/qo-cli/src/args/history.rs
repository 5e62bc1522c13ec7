//! `qo history`.

use clap::Args;
use qo::TaskId;

use super::WatchArgs;

/// Arguments of `qo history`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo history 550e8400-e29b-41d4-a716-446655440000
  qo history 550e8400-e29b-41d4-a716-446655440000 --versions
  qo history 550e8400-e29b-41d4-a716-446655440000 --diff
  qo history 550e8400-e29b-41d4-a716-446655440000 --json | jq -r .to")]
pub struct HistoryArgs {
    /// Task id
    pub id: TaskId,
    /// Show the stored versions of the task
    #[arg(long)]
    pub versions: bool,
    /// Show the changes between stored versions
    #[arg(long)]
    pub diff: bool,
    /// Show at most this many of the newest versions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub limit: u64,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
}
