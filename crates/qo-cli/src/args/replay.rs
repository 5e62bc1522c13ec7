//! `qo replay`.

use clap::Args;

use super::BulkArgs;

/// Arguments of `qo replay`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo replay 550e8400-e29b-41d4-a716-446655440000
  qo replay --type send_email --since 2h --dry-run
  qo replay --status failed --queue mail --yes")]
pub struct ReplayArgs {
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
}
