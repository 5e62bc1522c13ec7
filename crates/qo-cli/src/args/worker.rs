//! `qo worker`.

use std::time::Duration;

use clap::Args;
use qo::{IndexMode, QueueName, Shard, TaskType, WorkerId};
use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;

use super::values;

/// What `qo worker` takes.
#[derive(Debug, Clone, Default, Args)]
#[command(after_long_help = "\
Examples:
  qo worker --exec hello=cat
  qo worker --exec resize='python3 resize.py' --concurrency 4 --queue images
  qo worker --http 'invoice=https://billing.example.org/tasks' --http-header 'Authorization: Bearer ${BILLING_TOKEN}'
  qo worker --exec report=./report.sh --exit-when-idle        for cron: work off what is due and end

A command gets the input on standard input and the task's facts in QO_TASK_ID, QO_ATTEMPT, QO_DEADLINE, ...; what it prints is the output. \
Exit code 0 is success; 64, 65 and 78 fail the task for good; 75 and all others are retried. \
A server gets a POST with the input and Qo-* headers; 2xx is success, 408, 425, 429 and 5xx are retried, any other answer fails the task for good. \
docs/guides/handlers.md has all of it.

The same in qo.toml:
  [worker]
  concurrency = 4
  [worker.exec.resize]
  command = [\"python3\", \"resize.py\"]
  [worker.http.invoice]
  url = \"https://billing.example.org/tasks\"

Environment: QO_WORKER_ID, QO_QUEUES, QO_SHARDS, QO_CONCURRENCY, QO_LEASE, QO_SHUTDOWN_TIMEOUT, QO_INDEX_MODE, QO_NO_MONITOR; a flag is above its \
variable, and a variable is above qo.toml.")]
pub struct WorkerArgs {
    /// Run a command for each task of a type, through `sh -c`; can be given several times
    #[arg(long, value_name = "TYPE=COMMAND", value_parser = pair)]
    pub exec: Vec<(TaskType, String)>,
    /// Send a request for each task of a type; can be given several times
    #[arg(long, value_name = "TYPE=URL", value_parser = pair)]
    pub http: Vec<(TaskType, String)>,
    /// Take tasks of this queue; can be given several times, or with commas; `default` if not said
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub queue: Vec<QueueName>,
    /// Take tasks of every queue that there is
    #[arg(long, conflicts_with = "queue")]
    pub all_queues: bool,
    /// How many tasks run at once; 10 if not said
    #[arg(long, short = 'c', value_name = "N", value_parser = concurrency)]
    pub concurrency: Option<usize>,
    /// The worker's name; the host's name and some random letters if not said
    #[arg(long, value_name = "NAME")]
    pub id: Option<WorkerId>,
    /// Take tasks of these shards only, the first digits of task ids
    #[arg(long, value_name = "0,1,..,f", value_delimiter = ',')]
    pub shards: Vec<Shard>,
    /// How long a claim holds without a renewal, of which there is one in each third of it; 30s if not said
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub lease: Option<Duration>,
    /// How long a stop waits for running tasks; 30s if not said
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub shutdown_timeout: Option<Duration>,
    /// How work is found: index-only, hybrid or log-scan
    #[arg(long, value_name = "MODE")]
    pub index_mode: Option<IndexMode>,
    /// Do not bring back tasks of dead workers; something else has to
    #[arg(long)]
    pub no_monitor: bool,
    /// End when no task has run for so long; 5s if only the flag is given
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        default_missing_value = "5s",
        value_parser = values::positive_duration
    )]
    pub exit_when_idle: Option<Duration>,
    /// End after so many attempts; those that run beside the last one are finished too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tasks: Option<u64>,
    /// The largest output that is kept: bytes, or a number with KiB or MiB; 1MiB if not said
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_output: Option<u64>,
    /// How long a command that is told to end may take before it is killed; 5s if not said
    #[arg(long, value_name = "DURATION", value_parser = kill_grace)]
    pub kill_grace: Option<Duration>,
    /// Let commands see this variable although it is the worker's own (AWS_*, S3_*, GOOGLE_*, AZURE_*, QO_*); `NAME*` means all that begin so
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub pass_env: Vec<String>,
    /// Send this header with each request; ${NAME} in it stands for a variable of the environment
    #[arg(long, value_name = "NAME: VALUE")]
    pub http_header: Vec<String>,
    /// Let requests go to loopback, link-local and private addresses too
    #[arg(long)]
    pub allow_private_addresses: bool,
}

/// How many tasks can run at once.
const CONCURRENCY_MAX: usize = 1_000;

/// The longest that a command can take to end when it is told to.
const KILL_GRACE_MAX: Duration = Duration::from_mins(10);

/// `TYPE=SOMETHING`, cut at the first equals sign: a type has none.
fn pair(text: &str) -> Result<(TaskType, String), String> {
    match text.split_once('=') {
        Some((left, right)) if !left.trim().is_empty() && !right.trim().is_empty() => {
            let task_type = left.trim().parse().map_err(|error| format!("{error}"))?;
            Ok((task_type, right.trim().to_owned()))
        }
        _ => Err("write it as TYPE=..., such as hello=cat".to_owned()),
    }
}

/// A number of tasks.
pub fn concurrency(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(number) if (1..=CONCURRENCY_MAX).contains(&number) => Ok(number),
        _ => Err(format!("write a number from 1 to {CONCURRENCY_MAX}")),
    }
}

/// How long a command that is told to end may take.
pub fn kill_grace(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        grace if grace <= KILL_GRACE_MAX => Ok(grace),
        _ => Err("write a duration of at most 10m".to_owned()),
    }
}

/// A number of bytes: `4096`, `64KiB`, `1MiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = if let Some(digits) = text.strip_suffix("KiB") {
        (digits, 1024)
    } else if let Some(digits) = text.strip_suffix("MiB") {
        (digits, 1024 * 1024)
    } else {
        (text, 1)
    };
    digits
        .trim_end()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes <= STORED_PAYLOAD_MAX_BYTES)
        .ok_or_else(|| {
            "write a number of bytes, such as 65536, 64KiB or 1MiB, up to 256MiB".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_a_type_and_what_it_does() {
        let expected = (TaskType::new("a").unwrap(), "x=1 y".to_owned());
        assert_eq!(pair("a=x=1 y"), Ok(expected));
        for bad in ["a", "=x", "a=", " = ", "a b=c"] {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units_and_a_bound() {
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
