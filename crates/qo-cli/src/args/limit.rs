//! `qo limit`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use qo::model::LimitKey;
use qo::{QueueName, TaskType};

use super::values;

/// Arguments of `qo limit`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo limit set stripe --key stripe --concurrent 5 --starts 100/1m
  qo limit set reports --type report --concurrent 2
  qo limit list
  qo limit remove stripe
  qo submit --type charge --limit-key stripe")]
pub struct LimitArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: LimitCommand,
}

/// The subcommands of `qo limit`.
#[derive(Debug, Clone, Subcommand)]
pub enum LimitCommand {
    /// List limits
    List,
    /// Show one limit
    Show(LimitNameArgs),
    /// Create a limit, or replace the one with this name
    ///
    /// Takes effect within a few seconds. Running tasks continue, even if there are more of them than allowed.
    Set(Box<LimitSetArgs>),
    /// Remove a limit; the tasks that waited for it can start
    Remove(LimitNameArgs),
}

/// Arguments of the subcommands that take a name only.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo limit show stripe
  qo limit remove stripe --json")]
pub struct LimitNameArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Arguments of `qo limit set`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo limit set stripe --key stripe --concurrent 5
  qo limit set mail --type send_email --starts 100/1m
  qo limit set nightly --queue nightly --concurrent 2 --starts 1000/1h

With several of --queue, --type and --key, a limit applies to the tasks that match all of them. A task may be under several limits, and \
starts only if each of them has room. Every attempt counts as a start.")]
#[command(group = ArgGroup::new("applies to").args(["queue", "task_type", "key"]).multiple(true).required(true))]
#[command(group = ArgGroup::new("bounds").args(["concurrent", "starts"]).multiple(true).required(true))]
pub struct LimitSetArgs {
    /// Name of the limit
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Limit the tasks of this queue
    #[arg(long, value_name = "QUEUE", help_heading = "Applies to")]
    pub queue: Option<QueueName>,
    /// Limit the tasks of this type
    #[arg(
        long = "type",
        short = 't',
        value_name = "TYPE",
        help_heading = "Applies to"
    )]
    pub task_type: Option<TaskType>,
    /// Limit the tasks that are submitted with this --limit-key
    #[arg(long, value_name = "KEY", help_heading = "Applies to")]
    pub key: Option<LimitKey>,
    /// How many tasks may run at once, from 1 to 10000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Bounds")]
    pub concurrent: Option<u32>,
    /// How many tasks may start within a time window, such as 100/1m
    #[arg(long, value_name = "N/DURATION", value_parser = starts, help_heading = "Bounds")]
    pub starts: Option<(u32, Duration)>,
}

/// Parses a bound on starts.
fn starts(text: &str) -> Result<(u32, Duration), String> {
    let (max, window) = text
        .split_once('/')
        .ok_or("use a number and a duration, such as 100/1m")?;
    let max = max
        .trim()
        .parse()
        .map_err(|_| format!("{max:?} is not a number of starts; use a form such as 100/1m"))?;
    Ok((max, values::positive_duration(window)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_a_number_and_a_duration() {
        assert_eq!(starts("100/1m"), Ok((100, Duration::from_mins(1))));
        assert_eq!(starts("5/30"), Ok((5, Duration::from_secs(30))));
        for bad in ["", "100", "x/1m", "-1/1m", "1/", "1/0s", "1/1y2"] {
            assert!(starts(bad).is_err(), "{bad}");
        }
    }
}
