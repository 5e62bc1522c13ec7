//! `qo serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Arguments of `qo serve`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo serve                                                  listens on http://127.0.0.1:7777
  qo serve --store 's3://bucket?engine=slate' \\
    --listen 0.0.0.0:7777 --advertise http://10.0.0.5:7777  broker mode; start two for a standby
  qo submit --store 's3://bucket?engine=slate' --type t     finds the broker by itself
  qo token create --name workers --scope work
  qo serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
  QO_TOKEN=qo_... qo list --store https://queue.example.org

Paths: dashboard /ui/, API reference /docs, OpenAPI document /v1/openapi.json, metrics /metrics.")]
pub struct ServeArgs {
    /// Address to listen on; addresses other than loopback require tokens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7777")]
    pub listen: SocketAddr,
    /// PEM file with the TLS certificate chain, server certificate first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the TLS certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// In broker mode, the URL at which clients and other brokers reach this one [default: the listen address]
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// In direct mode, do not recover tasks of dead workers; run `qo monitor` or a worker instead
    #[arg(long)]
    pub no_monitor: bool,
}
