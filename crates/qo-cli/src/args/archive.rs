//! `qo archive` and `qo unarchive`.

use clap::Args;

use super::BulkArgs;

/// Puts tasks away that have come to their end: they are kept, but no longer listed unless asked for. With a filter, all that have come
/// to their end if no status is given.
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

/// Takes archived tasks out again, so that they can be replayed.
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
