//! `qo init`.

use std::time::Duration;

use clap::Args;

use super::values;

/// What `qo init` takes.
#[derive(Debug, Clone, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
#[command(after_long_help = "\
Examples:
  qo init --dry-run
  qo init --store s3://bucket
  qo init --ui
  qo init --no-versioning --cors-origin https://qo.example.org

Environment: QO_ALLOW_NO_VERSIONING=1 is --no-versioning.")]
pub struct InitArgs {
    /// Leave the bucket's versioning as it is
    #[arg(long)]
    pub no_versioning: bool,
    /// From where browsers may call the bucket; from everywhere, if not said
    #[arg(long, value_name = "ORIGIN", default_value = "*")]
    pub cors_origin: Vec<String>,
    /// Set no rule for browsers
    #[arg(long, conflicts_with = "cors_origin")]
    pub no_cors: bool,
    /// Put the dashboard into the bucket, too; `qo ui deploy --public` lets browsers open it there
    #[arg(long, conflicts_with = "dry_run")]
    pub ui: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// How long the probe of the bucket may take
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub probe_budget: Option<Duration>,
}
