//! `qo workers`.

use std::time::Duration;

use clap::Args;

use super::{WatchArgs, values};

/// Arguments of `qo workers`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo workers
  qo workers --watch
  qo workers --json | jq -r 'select(.state != \"active\") | .worker_id'")]
pub struct WorkersArgs {
    /// A worker without a heartbeat for this long is stale
    #[arg(
        long,
        visible_alias = "worker-health-threshold",
        value_name = "DURATION",
        default_value = "60s",
        value_parser = values::positive_duration
    )]
    pub threshold: Duration,
    /// Repeated output.
    #[command(flatten)]
    pub watch: WatchArgs,
}
