//! `qo serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// What `qo serve` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo serve                                                  http://127.0.0.1:7777, for this machine alone
  qo serve --store 's3://bucket?engine=slate' \\
    --listen 0.0.0.0:7777 --advertise http://10.0.0.5:7777  broker mode; start it twice, and one stands by
  qo submit --store 's3://bucket?engine=slate' --type t     a client finds the broker through the store
  qo token create --name workers --scope work
  qo serve --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
  QO_TOKEN=qo_... qo list --store https://queue.example.org

The dashboard is at /ui/, the reference of the API at /docs, its OpenAPI document at /v1/openapi.json, metrics at /metrics.")]
pub struct ServeArgs {
    /// Where to listen; other addresses than loopback need tokens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7777")]
    pub listen: SocketAddr,
    /// The certificate for HTTPS, as PEM, the server's own first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// In broker mode, where clients and other brokers reach this one; the address that it listens on, if not given
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// In direct mode, do not bring back tasks of dead workers; something else has to
    #[arg(long)]
    pub no_monitor: bool,
}
