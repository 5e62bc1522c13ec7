//! Looking again and again.

use std::time::Duration;

use clap::Args;

use super::values;

/// Looking again and again.
#[derive(Debug, Clone, Default, Args)]
pub struct WatchArgs {
    /// Look again every so many seconds; 2 on this machine's stores, 5 on others, if not said
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = values::watch_interval)]
    pub watch: Option<Option<Duration>>,
}
