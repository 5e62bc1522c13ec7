//! `qo init`.

use std::time::Duration;

use clap::Args;

use super::values;

/// Arguments of `qo init`.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[command(after_long_help = "\
Examples:
  qo init --dry-run
  qo init --store s3://bucket
  qo init --ui
  qo init --no-versioning --cors-origin https://qo.example.org

Environment: QO_ALLOW_NO_VERSIONING=1 is the same as --no-versioning.")]
pub struct InitArgs {
    /// Leave the bucket's versioning unchanged
    #[arg(long)]
    pub no_versioning: bool,
    /// Origin from which browsers may access the bucket; repeatable
    #[arg(long, value_name = "ORIGIN", default_value = "*")]
    pub cors_origin: Vec<String>,
    /// Do not set a CORS rule
    #[arg(long, conflicts_with = "cors_origin")]
    pub no_cors: bool,
    /// Also upload the dashboard to the bucket; make it readable with `qo ui deploy --public`
    #[arg(long, conflicts_with = "dry_run")]
    pub ui: bool,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Time limit for probing the store's conditional writes
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub probe_budget: Option<Duration>,
}
