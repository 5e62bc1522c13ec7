//! `qo serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{NodeArgs, values};

/// Arguments of `qo serve`.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[command(after_long_help = "\
Examples:
  qo serve                                                  listens on http://127.0.0.1:7777
  qo serve --store 's3://bucket?engine=slate' \\
    --listen 0.0.0.0:7777 --advertise http://10.0.0.5:7777  broker mode; start two for a standby
  qo submit --store 's3://bucket?engine=slate' --type t     finds the broker by itself
  qo serve --cluster orders --node 1 --data /var/lib/qo --secret-file secret \\
    --member 1@10.0.0.5:7778=http://10.0.0.5:7777 --member 2@10.0.0.6:7778=http://10.0.0.6:7777 \\
    --member 3@10.0.0.7:7778=http://10.0.0.7:7777           a node of a cluster; start all three
  qo token create --name workers --scope work
  qo serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
  QO_TOKEN=qo_... qo list --store https://queue.example.org
  qo serve --webhooks                                       delivers the notifications of `qo webhook`
  qo serve --mdns                                           announces itself on this network; see `qo discover`

Paths: dashboard /ui/, API reference /docs, OpenAPI document /v1/openapi.json, metrics /metrics.")]
pub struct ServeArgs {
    /// Address to listen on; addresses other than loopback require tokens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7777")]
    pub listen: SocketAddr,
    /// Being a node of a cluster.
    #[command(flatten)]
    pub node: NodeArgs,
    /// PEM file with the TLS certificate chain, server certificate first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the TLS certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// In broker mode, the URL at which clients and other brokers reach this one [default: the listen address]
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Origin whose pages may use the API with a token, such as a dashboard in a bucket (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<qo_server::Origin>,
    /// Announce the server on the local network by multicast DNS, for `qo discover` and the store URL mdns:
    #[arg(long)]
    pub mdns: bool,
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// Maximum number of connections from one address, except this machine's [default: half of --max-connections]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections_per_peer: Option<u32>,
    /// Maximum number of requests that wait for a task [default: three quarters of --max-connections]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_waiting: Option<u32>,
    /// In direct mode, do not recover tasks of dead workers; run `qo monitor` or a worker instead
    #[arg(long)]
    pub no_monitor: bool,
    /// Deliver the notifications of webhooks
    #[arg(long)]
    pub webhooks: bool,
    /// Allow webhooks at loopback, link-local and private addresses
    #[arg(long, requires = "webhooks")]
    pub allow_private_addresses: bool,
    /// Time after its claim or its last tickle at which a job counts as abandoned (job routes)
    #[arg(long, value_name = "DURATION", default_value = "300s", value_parser = values::positive_duration)]
    pub job_abandoned_age: Duration,
    /// Maximum number of attempts of a job (job routes)
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub job_max_attempts: u32,
}
