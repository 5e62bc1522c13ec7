//! `qo doctor`.

use std::time::Duration;

use clap::Args;

use super::values;

/// Arguments of `qo doctor`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo doctor
  qo doctor --store s3://bucket -v
  qo doctor --rescue
  qo doctor --json | jq '.checks[] | select(.health != \"ok\")'")]
pub struct DoctorArgs {
    /// Time limit for all checks together
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::positive_duration)]
    pub time: Duration,
    /// Time limit for probing the store's conditional writes
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub probe_budget: Option<Duration>,
    /// Repair objects that the store refuses to change, by writing them again
    ///
    /// Stop all workers, servers and clients of the bucket first. The command refuses if anything has used the bucket in the last two minutes.
    #[arg(long)]
    pub rescue: bool,
    /// Exit with an error on warnings too
    #[arg(long)]
    pub strict: bool,
}
