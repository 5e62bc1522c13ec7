//! `qo monitor`.

use clap::Args;

/// The longest interval that can be set: a day.
const INTERVAL_MAX_SECONDS: u64 = 24 * 60 * 60;

/// Arguments of `qo monitor`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo monitor
  qo monitor --check-interval 10 --sweep-interval 0
  qo monitor --once --json        one pass, for cron

Environment: QO_MONITOR_CHECK_INTERVAL, QO_MONITOR_WORKER_HEALTH_THRESHOLD, QO_MONITOR_SWEEP_INTERVAL, QO_MONITOR_SWEEP_PAGE_SIZE, QO_MONITOR_RETENTION; flags take precedence.")]
pub struct MonitorArgs {
    /// Seconds between lease checks [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=INTERVAL_MAX_SECONDS))]
    pub check_interval: Option<u64>,
    /// Warn about workers without a heartbeat for this many seconds [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=INTERVAL_MAX_SECONDS))]
    pub worker_health_threshold: Option<u64>,
    /// Seconds between the starts of two sweeps over all tasks; 0 disables sweeps [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=INTERVAL_MAX_SECONDS))]
    pub sweep_interval: Option<u64>,
    /// Objects to list per request during a sweep [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub sweep_page_size: Option<u64>,
    /// Run one pass and exit
    #[arg(long)]
    pub once: bool,
}
