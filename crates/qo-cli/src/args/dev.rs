//! `qo dev`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::values;

/// Arguments of `qo dev`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo dev
  qo dev --tasks-per-second 20 --for 5m
  qo dev --tasks-per-second 0             just a worker, for tasks you submit yourself
  qo dev --store memory: --for 5s | cat   keeps nothing
  qo dev --cluster 3                      a cluster of three nodes on this machine")]
pub struct DevArgs {
    /// Sample tasks to submit per second
    #[arg(long, value_name = "N", default_value = "4", value_parser = rate)]
    pub tasks_per_second: f64,
    /// How long to submit sample tasks
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = values::duration)]
    pub duration: Duration,
    /// Loopback address of the dashboard; if the port is in use, another one is chosen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7777", value_parser = loopback)]
    pub listen: SocketAddr,
    /// Run the queue on a cluster of this many nodes in this process; it keeps nothing
    #[arg(long, value_name = "NODES", conflicts_with = "no_dashboard", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub cluster: Option<u8>,
    /// Do not serve the dashboard
    #[arg(long)]
    pub no_dashboard: bool,
    /// Do not announce the server of the dashboard by multicast DNS on this machine
    #[arg(long)]
    pub no_mdns: bool,
    /// Maximum number of tasks to run at once
    #[arg(long, short = 'c', value_name = "N", default_value = "4", value_parser = super::worker::concurrency)]
    pub concurrency: usize,
}

/// Parses a loopback address. The dashboard of `qo dev` requires no token, so it must not be reachable from other machines.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    match text.trim().parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err("use a loopback address such as 127.0.0.1:7777; to serve other machines, use `qo serve` with tokens".to_owned()),
        Err(_) => Err("expected ADDRESS:PORT, such as 127.0.0.1:7777".to_owned()),
    }
}

/// Maximum number of sample tasks per second.
const RATE_MAX: f64 = 1_000.0;

fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if (0.0..=RATE_MAX).contains(&rate) => Ok(rate),
        _ => Err(format!("expected a number from 0 to {RATE_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_accepted() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:80").is_ok());
        for bad in ["0.0.0.0:7777", "10.0.0.1:1", "7777", "localhost", ""] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_bounded() {
        assert!(rate("0").is_ok() && rate("0.5").is_ok() && rate("1000").is_ok());
        for bad in ["-1", "1001", "NaN", "inf", "many", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
