//! `qo workers`.

use std::time::Duration;

use clap::{Args, Subcommand};
use qo::WorkerId;

use super::{WatchArgs, values};

/// Arguments of `qo workers`.
#[derive(Debug, Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  qo workers
  qo workers --watch
  qo workers stop web-1.4711
  qo workers --json | jq -r 'select(.state != \"active\") | .worker_id'"
)]
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
    /// A request to workers, instead of the list.
    #[command(subcommand)]
    pub request: Option<WorkersCommand>,
}

/// Requests to workers.
#[derive(Debug, Clone, Subcommand)]
pub enum WorkersCommand {
    /// Ask workers to claim no more tasks
    ///
    /// They finish the tasks that they run. A worker sees the request with its next heartbeat, within about 15 seconds.
    Quiet(WorkerNames),
    /// Ask workers to finish and exit
    ///
    /// They claim no more tasks, finish those that they run, and exit with code 0. Tasks that still run at the shutdown timeout
    /// of the worker are released. A worker sees the request with its next heartbeat, within about 15 seconds.
    Stop(WorkerNames),
    /// Withdraw a request to claim no more tasks
    Resume(WorkerNames),
}

/// The workers of a request.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo workers quiet web-1.4711
  qo workers stop web-1.4711 web-2.4711
  qo workers resume web-1.4711")]
pub struct WorkerNames {
    /// The workers, as `qo workers` shows them
    #[arg(value_name = "WORKER", required = true)]
    pub workers: Vec<WorkerId>,
}
