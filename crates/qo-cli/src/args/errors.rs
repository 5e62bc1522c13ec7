//! `qo errors`.

use clap::Args;

use super::{FilterArgs, WatchArgs};

/// Arguments of `qo errors`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo errors
  qo errors --since 2h --queue mail
  qo errors --status failed,cancelled --limit 50000
  qo errors --json | jq -r 'select(.count > 10) | .example'
  qo list --status failed --type send_email     # the tasks behind a line

Numbers, ids, times and hexadecimal values in errors are replaced before errors are compared. The newest tasks are read first, up to
--limit. Brokers and clusters have an index of failed tasks; in direct mode every task is read until enough have failed.")]
pub struct ErrorsArgs {
    /// Maximum number of tasks to read
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub limit: u64,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// The tasks to group; failed ones unless --status is given.
    #[command(flatten)]
    pub filter: FilterArgs,
}
