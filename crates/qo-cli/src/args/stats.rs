//! `qo stats`.

use clap::Args;

use super::WatchArgs;

/// What `qo stats` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo stats
  qo stats --types
  qo stats --watch 10
  qo stats --json | jq '.queues.default.statuses.failed'

In direct mode every task is looked at, up to a limit; where there are more, the numbers are marked as partial.")]
pub struct StatsArgs {
    /// Count by type, too
    #[arg(long)]
    pub types: bool,
    /// Looking again and again.
    #[command(flatten)]
    pub watch: WatchArgs,
}
