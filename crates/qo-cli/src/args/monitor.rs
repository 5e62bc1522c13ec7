//! `qo monitor`.

use clap::Args;

/// The longest interval that can be set: a day.
const INTERVAL_MAX_SECONDS: u64 = 24 * 60 * 60;

/// What `qo monitor` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo monitor
  qo monitor --check-interval 10 --sweep-interval 0
  qo monitor --once --json        one round, for cron

Environment: QO_MONITOR_CHECK_INTERVAL, QO_MONITOR_WORKER_HEALTH_THRESHOLD, QO_MONITOR_SWEEP_INTERVAL, QO_MONITOR_SWEEP_PAGE_SIZE; a flag is above its variable.")]
pub struct MonitorArgs {
    /// Seconds between two looks at the leases; 30 if not said
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=INTERVAL_MAX_SECONDS))]
    pub check_interval: Option<u64>,
    /// Warn of a worker that was not heard of for so many seconds; 60 if not said
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=INTERVAL_MAX_SECONDS))]
    pub worker_health_threshold: Option<u64>,
    /// Seconds from the beginning of one pass over all tasks to the next; 0 switches it off; 300 if not said
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=INTERVAL_MAX_SECONDS))]
    pub sweep_interval: Option<u64>,
    /// How many objects a pass asks for at once; 1000 if not said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub sweep_page_size: Option<u64>,
    /// Do one round and end
    #[arg(long)]
    pub once: bool,
}
