//! `qo list`.

use clap::Args;

use super::{FilterArgs, WatchArgs};

/// What `qo list` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo list
  qo list --status failed,cancelled --since 2h
  qo list --queue mail --type send_email --limit 20
  qo list --status running --watch
  qo list --all --json | jq -r 'select(.attempt > 1) | .id'

A list looks at the tasks in the order of their ids, so that with --limit it shows some of the tasks that match, not the newest.")]
pub struct ListArgs {
    /// Show at most so many tasks
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub limit: u64,
    /// Show every task that matches
    #[arg(long, conflicts_with_all = ["limit", "cursor", "watch"])]
    pub all: bool,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Looking again and again.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Which tasks.
    #[command(flatten)]
    pub filter: FilterArgs,
}
