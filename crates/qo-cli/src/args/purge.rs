//! `qo purge`.

use std::time::Duration;

use clap::Args;

use super::{BulkArgs, values};

/// Arguments of `qo purge`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo purge 550e8400-e29b-41d4-a716-446655440000
  qo purge --status archived --dry-run
  qo purge --status completed --older-than 30d --yes")]
pub struct PurgeArgs {
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
    /// Only tasks that finished longer ago than this
    #[arg(long, value_name = "DURATION", conflicts_with = "ids", value_parser = values::duration, help_heading = "Filter")]
    pub older_than: Option<Duration>,
}
