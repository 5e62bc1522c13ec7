//! `qo worker`.

use std::time::Duration;

use clap::Args;
use qo::{IndexMode, QueueName, Shard, TaskType, WorkerId};
use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;

use super::values;
use super::worker_wasi::WasiArgs;

/// The most of the log of an attempt that a worker keeps.
const LOG_MAX_BYTES: u64 = 16 * 1024;

/// Arguments of `qo worker`.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[command(after_long_help = "\
Examples:
  qo worker --exec hello=cat
  qo worker --exec resize='python3 resize.py' --concurrency 4 --queue images
  qo worker --http invoice=https://example.org/tasks --http-header 'X-Key: ${INVOICE_KEY}'
  qo worker --exec report=./report.sh --exit-when-idle        for cron: run all due tasks and exit
  qo worker --wasi --wasi-memory 1GiB                         run WASI jobs, such as those of `qo run`
  qo worker --webhooks                                        deliver the notifications of `qo webhook`

A command receives the input on standard input and task details in QO_TASK_ID, QO_ATTEMPT, QO_DEADLINE and other variables. Its standard output is the \
task's output. Exit code 0 means success; 64, 65 and 78 fail the task permanently; any other code is retried. \
A server receives a POST with the input and Qo-* headers. 2xx means success; 408, 425, 429 and 5xx are retried; any other status fails the task permanently. \
See docs/guides/handlers.md for details.

The same in qo.toml:
  [worker]
  concurrency = 4
  [worker.exec.resize]
  command = [\"python3\", \"resize.py\"]
  [worker.http.invoice]
  url = \"https://example.org/tasks\"

Environment: QO_WORKER_ID, QO_QUEUES, QO_SHARDS, QO_CONCURRENCY, QO_LEASE, QO_SHUTDOWN_TIMEOUT, QO_INDEX_MODE, QO_NO_MONITOR; flags take \
precedence over variables, and variables over qo.toml.")]
pub struct WorkerArgs {
    /// Run this command with `sh -c` for each task of the type; repeatable
    #[arg(long, value_name = "TYPE=COMMAND", value_parser = pair)]
    pub exec: Vec<(TaskType, String)>,
    /// Send an HTTP request to this URL for each task of the type; repeatable
    #[arg(long, value_name = "TYPE=URL", value_parser = pair)]
    pub http: Vec<(TaskType, String)>,
    /// WASI jobs.
    #[command(flatten)]
    pub wasi: WasiArgs,
    /// Deliver the notifications of webhooks, in addition to other tasks; needs access to the store itself
    #[arg(long)]
    pub webhooks: bool,
    /// Queue to serve; repeatable, or comma-separated [default: default]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub queue: Vec<QueueName>,
    /// Serve every queue
    #[arg(long, conflicts_with = "queue")]
    pub all_queues: bool,
    /// Maximum number of tasks to run at once [default: 10]
    #[arg(long, short = 'c', value_name = "N", value_parser = concurrency)]
    pub concurrency: Option<usize>,
    /// Worker id [default: host name, process id and a random suffix]
    #[arg(long, value_name = "NAME")]
    pub id: Option<WorkerId>,
    /// Serve only these shards: the first hexadecimal digits of task ids
    #[arg(long, value_name = "0,1,..,f", value_delimiter = ',')]
    pub shards: Vec<Shard>,
    /// Lease duration; leases are renewed after a third of it [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub lease: Option<Duration>,
    /// How long to wait for running tasks when stopping [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub shutdown_timeout: Option<Duration>,
    /// How to find tasks: index-only, hybrid or log-scan
    #[arg(long, value_name = "MODE")]
    pub index_mode: Option<IndexMode>,
    /// Do not recover tasks of dead workers; run `qo monitor` or another worker instead
    #[arg(long)]
    pub no_monitor: bool,
    /// Exit when no task has run for this time; without a value, 5s
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        default_missing_value = "5s",
        value_parser = values::positive_duration
    )]
    pub exit_when_idle: Option<Duration>,
    /// Exit after this many attempts, once all running ones have finished
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tasks: Option<u64>,
    /// Maximum size of an output: bytes, or a number with KiB or MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_output: Option<u64>,
    /// How much of the log of an attempt is kept: its end, up to 16KiB; 0 keeps none [default: 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = log_size)]
    pub log_max: Option<u64>,
    /// Time between asking a command to stop and killing it [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = kill_grace)]
    pub kill_grace: Option<Duration>,
    /// Pass this variable to commands; AWS_*, S3_*, GOOGLE_*, GCS_*, AZURE_* and QO_* are withheld otherwise; `NAME*` passes all with this prefix
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub pass_env: Vec<String>,
    /// Header to send with each request; ${NAME} expands to an environment variable; repeatable
    #[arg(long, value_name = "NAME: VALUE")]
    pub http_header: Vec<String>,
    /// Allow requests to loopback, link-local and private addresses
    #[arg(long)]
    pub allow_private_addresses: bool,
}

/// Maximum concurrency.
const CONCURRENCY_MAX: usize = 1_000;

/// Maximum of `--kill-grace`.
const KILL_GRACE_MAX: Duration = Duration::from_mins(10);

/// Parses `TYPE=VALUE`, split at the first equals sign: a type contains none.
fn pair(text: &str) -> Result<(TaskType, String), String> {
    match text.split_once('=') {
        Some((left, right)) if !left.trim().is_empty() && !right.trim().is_empty() => {
            let task_type = left.trim().parse().map_err(|error| format!("{error}"))?;
            Ok((task_type, right.trim().to_owned()))
        }
        _ => Err("expected TYPE=VALUE, such as hello=cat".to_owned()),
    }
}

/// Parses a concurrency.
pub fn concurrency(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(number) if (1..=CONCURRENCY_MAX).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from 1 to {CONCURRENCY_MAX}")),
    }
}

/// Parses the time between asking a command to stop and killing it.
pub fn kill_grace(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        grace if grace <= KILL_GRACE_MAX => Ok(grace),
        _ => Err("must be at most 10m".to_owned()),
    }
}

/// Parses the maximum size of an output: `4096`, `64KiB`, `1MiB`.
pub fn size(text: &str) -> Result<u64, String> {
    values::bytes(text)
        .filter(|bytes| *bytes <= STORED_PAYLOAD_MAX_BYTES)
        .ok_or_else(|| "expected a size such as 65536, 64KiB or 1MiB, up to 256MiB".to_owned())
}

/// The size of a log.
pub fn log_size(text: &str) -> Result<u64, String> {
    values::bytes(text)
        .filter(|bytes| *bytes <= LOG_MAX_BYTES)
        .ok_or_else(|| "expected a size such as 4096 or 8KiB, up to 16KiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_a_type_and_a_value() {
        let expected = (TaskType::new("a").unwrap(), "x=1 y".to_owned());
        assert_eq!(pair("a=x=1 y"), Ok(expected));
        for bad in ["a", "=x", "a=", " = ", "a b=c"] {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units_and_a_maximum() {
        assert_eq!((log_size("0"), log_size("16KiB")), (Ok(0), Ok(16_384)));
        assert!(log_size("17KiB").is_err());
        assert_eq!(size("10"), Ok(10));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("256 MiB"), Ok(STORED_PAYLOAD_MAX_BYTES));
        for bad in ["", "x", "1GiB", "257MiB", "-1", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(concurrency("0").is_err() && concurrency("1001").is_err());
        assert!(kill_grace("10m").is_ok() && kill_grace("11m").is_err());
    }
}
