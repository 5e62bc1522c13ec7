//! `qo cancel`.

use clap::Args;

use super::BulkArgs;

/// Arguments of `qo cancel`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo cancel 550e8400-e29b-41d4-a716-446655440000 --reason 'sent by hand'
  qo cancel --status pending --tag campaign-7 --dry-run
  qo cancel --queue mail --yes")]
pub struct CancelArgs {
    /// Reason to record in the task's history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
}
