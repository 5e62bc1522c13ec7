//! `qo archive` and `qo unarchive`.

use clap::Args;

use super::BulkArgs;

/// What `qo archive` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo archive 550e8400-e29b-41d4-a716-446655440000
  qo archive --status completed --yes
  qo list --status archived")]
pub struct ArchiveArgs {
    /// Which tasks.
    #[command(flatten)]
    pub tasks: BulkArgs,
}

/// What `qo unarchive` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo unarchive 550e8400-e29b-41d4-a716-446655440000
  qo unarchive --type send_email --yes")]
pub struct UnarchiveArgs {
    /// Which tasks.
    #[command(flatten)]
    pub tasks: BulkArgs,
}
