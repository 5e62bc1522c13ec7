//! `qo stats`.

use clap::Args;

use super::WatchArgs;

/// Arguments of `qo stats`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo stats
  qo stats --types
  qo stats --watch 10
  qo stats --json | jq '.queues.default.statuses.failed'

In direct mode the command reads every task, up to a limit. If there are more tasks, it says that the counts are partial.")]
pub struct StatsArgs {
    /// Also count by task type
    #[arg(long)]
    pub types: bool,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
}
