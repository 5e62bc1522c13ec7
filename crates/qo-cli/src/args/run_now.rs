//! `qo run-now`.

use clap::Args;

use super::BulkArgs;

/// Arguments of `qo run-now`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo run-now 550e8400-e29b-41d4-a716-446655440000
  qo run-now --type send_email --dry-run
  qo run-now --queue mail --yes")]
pub struct RunNowArgs {
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
}
