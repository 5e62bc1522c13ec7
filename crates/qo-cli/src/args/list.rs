//! `qo list`.

use clap::Args;

use super::{FilterArgs, WatchArgs};

/// Arguments of `qo list`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo list
  qo list --status failed,cancelled --since 2h
  qo list --queue mail --type send_email --limit 20
  qo list --status running --watch
  qo list --all --json | jq -r 'select(.attempt > 1) | .id'

Tasks are read in order of their ids. With --limit you get some of the matching tasks, not the newest ones.")]
pub struct ListArgs {
    /// Maximum number of tasks to show
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub limit: u64,
    /// Show every matching task
    #[arg(long, conflicts_with_all = ["limit", "cursor", "watch"])]
    pub all: bool,
    /// Continue after the end of an earlier list
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// The tasks to list.
    #[command(flatten)]
    pub filter: FilterArgs,
}
