//! `qo status`.

use clap::Args;
use qo::TaskId;

use super::WatchArgs;

/// Arguments of `qo status`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo status 550e8400-e29b-41d4-a716-446655440000
  qo status 550e8400-e29b-41d4-a716-446655440000 --watch
  qo status 550e8400-e29b-41d4-a716-446655440000 --full --json | jq .output")]
pub struct StatusArgs {
    /// Task id
    pub id: TaskId,
    /// Show input, output and error in full, including payloads stored outside the record
    #[arg(long)]
    pub full: bool,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
}
