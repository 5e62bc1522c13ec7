//! `qo archive` and `qo unarchive`.

use clap::Args;

use super::BulkArgs;

/// Arguments of `qo archive`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo archive 550e8400-e29b-41d4-a716-446655440000
  qo archive --status completed --yes
  qo list --status archived")]
pub struct ArchiveArgs {
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
}

/// Arguments of `qo unarchive`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo unarchive 550e8400-e29b-41d4-a716-446655440000
  qo unarchive --type send_email --yes")]
pub struct UnarchiveArgs {
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
}
