//! `qo dev`.

use std::time::Duration;

use clap::Args;

use super::values;

/// What `qo dev` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo dev
  qo dev --tasks-per-second 20 --for 5m
  qo dev --tasks-per-second 0             only a worker, for tasks that you submit
  qo dev --store memory: --for 5s | cat   nothing is kept")]
pub struct DevArgs {
    /// How many sample tasks are submitted each second
    #[arg(long, value_name = "N", default_value = "4", value_parser = rate)]
    pub tasks_per_second: f64,
    /// How long sample tasks are submitted
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub duration: Duration,
    /// How many tasks run at once
    #[arg(long, short = 'c', value_name = "N", default_value = "4", value_parser = super::worker::concurrency)]
    pub concurrency: usize,
}

/// The most sample tasks in a second.
const RATE_MAX: f64 = 1_000.0;

fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if (0.0..=RATE_MAX).contains(&rate) => Ok(rate),
        _ => Err(format!("write a number from 0 to {RATE_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bounded() {
        assert!(rate("0").is_ok() && rate("0.5").is_ok() && rate("1000").is_ok());
        for bad in ["-1", "1001", "NaN", "inf", "many", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
