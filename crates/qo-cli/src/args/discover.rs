//! `qo discover`.

use std::time::Duration;

use clap::Args;

use super::values;

/// Arguments of `qo discover`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo discover
  qo discover --timeout 5s --json | jq -r .url
  qo list --store mdns:                 the only server on the network
  qo list --store mdns:laptop-7777      one of several

Anyone on the network can respond, so a token is sent to a server that was found this way only over TLS or on this machine.")]
pub struct DiscoverArgs {
    /// How long to wait for answers
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::positive_duration)]
    pub timeout: Duration,
}
