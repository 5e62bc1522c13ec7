//! `qo ui`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::values;

/// Arguments of `qo ui`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo ui deploy --public
  qo ui link --read-only
  qo ui link --role arn:aws:iam::123456789012:role/qo-operator --for 15m")]
pub struct UiArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: UiCommand,
}

/// The subcommands of `qo ui`.
#[derive(Debug, Clone, Subcommand)]
pub enum UiCommand {
    /// Upload the dashboard to the bucket's `ui/`
    ///
    /// Running it again writes only changed files.
    Deploy(UiDeployArgs),
    /// Print a link that opens the dashboard with temporary credentials
    ///
    /// The credentials are in the part after `#`, which browsers do not send to a server. They are temporary if the store can
    /// issue a session. For a server, the link contains a new token that expires, created with the token in `QO_TOKEN`. Treat the link like a
    /// password until it expires.
    Link(UiLinkArgs),
}

/// Arguments of `qo ui deploy`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo ui deploy
  qo ui deploy --public")]
pub struct UiDeployArgs {
    /// Make the dashboard's files, and nothing else, publicly readable through the bucket policy
    #[arg(long)]
    pub public: bool,
}

/// Arguments of `qo ui link`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo ui link --read-only
  qo ui link --for 15m --go tasks?tab=failed
  qo ui link --role arn:aws:iam::123456789012:role/qo-operator
  qo ui link --allow-long-lived     for a store on this machine
  qo ui link --store https://queue.example.org --read-only")]
pub struct UiLinkArgs {
    /// Issue credentials that cannot change anything
    #[arg(long)]
    pub read_only: bool,
    /// Lifetime of the session, from 15 minutes to 12 hours
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = values::positive_duration)]
    pub lasts: Duration,
    /// Role to assume for the session
    #[arg(long, value_name = "ARN")]
    pub role: Option<String>,
    /// If no session can be issued, put long-lived keys into the link
    #[arg(long)]
    pub allow_long_lived: bool,
    /// URL of the dashboard [default: `ui/` of the bucket or the server]
    #[arg(long, value_name = "URL")]
    pub page: Option<String>,
    /// Page of the dashboard to open
    #[arg(long, value_name = "PAGE")]
    pub go: Option<String>,
}
