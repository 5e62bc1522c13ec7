//! `qo redrive`.

use clap::Args;
use qo::QueueName;

use super::BulkArgs;

/// Arguments of `qo redrive`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo redrive 550e8400-e29b-41d4-a716-446655440000 --to mail
  qo redrive --status failed --queue mail --to mail-repaired --dry-run
  qo redrive --status pending --queue bulk --type send_email --to mail --yes")]
pub struct RedriveArgs {
    /// Queue to move the tasks to
    #[arg(long, value_name = "QUEUE")]
    pub to: QueueName,
    /// The tasks to change.
    #[command(flatten)]
    pub tasks: BulkArgs,
}
