//! `qo doctor`.

use std::time::Duration;

use clap::Args;

use super::values;

/// What `qo doctor` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo doctor
  qo doctor --store s3://bucket -v
  qo doctor --json | jq '.checks[] | select(.health != \"ok\")'")]
pub struct DoctorArgs {
    /// How long all checks together may take
    #[arg(long, value_name = "DURATION", default_value = "60", value_parser = values::positive_duration)]
    pub time: Duration,
    /// How long the probe of the bucket may take
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub probe_budget: Option<Duration>,
    /// Fail on warnings, too
    #[arg(long)]
    pub strict: bool,
}
