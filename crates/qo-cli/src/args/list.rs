//! `qo list`.

use clap::{Args, ValueEnum};
use qo::TaskOrder;

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
  qo list --sort id --limit 1000
  qo list --status failed --text 'connection refused'

The newest tasks come first. Brokers and clusters keep an index for it. In direct mode it is the order of the times in the ids that qo
generates; tasks with ids that callers chose come last.")]
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
    /// The order of the tasks
    #[arg(long, value_name = "ORDER", default_value = "newest")]
    pub sort: SortOrder,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// The tasks to list.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortOrder {
    /// The task that was submitted last comes first
    Newest,
    /// By id
    Id,
}

impl From<SortOrder> for TaskOrder {
    fn from(order: SortOrder) -> Self {
        match order {
            SortOrder::Newest => Self::Newest,
            SortOrder::Id => Self::Id,
        }
    }
}
