//! `--watch`.

use std::time::Duration;

use clap::Args;

use super::values;

/// Repeated output.
#[derive(Debug, Clone, Default, Args)]
pub struct WatchArgs {
    /// Repeat at this interval [default: 2 for local stores, 5 for others]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = values::watch_interval)]
    pub watch: Option<Option<Duration>>,
}
