//! `qo ui`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::values;

/// Puts the dashboard into the bucket, and makes links that open it. The dashboard is a page that asks the bucket straight from a
/// browser; nothing has to run for it.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo ui deploy --public
  qo ui link --read-only
  qo ui link --role arn:aws:iam::123456789012:role/qo-operator --for 15m")]
pub struct UiArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: UiCommand,
}

/// What to do with the dashboard.
#[derive(Debug, Clone, Subcommand)]
pub enum UiCommand {
    /// Put the dashboard's files into the bucket's `ui/`
    Deploy(UiDeployArgs),
    /// Print a link that opens the dashboard with a session of its own
    Link(UiLinkArgs),
}

/// Puts the dashboard's files into the bucket's `ui/`. It can be run again, and writes only what has changed.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo ui deploy
  qo ui deploy --public")]
pub struct UiDeployArgs {
    /// Let everybody read the dashboard's files, and nothing else in the bucket, by the bucket's policy
    #[arg(long)]
    pub public: bool,
}

/// Prints a link that opens the dashboard. It carries credentials behind its `#`, where no server sees them: a session that ends by
/// itself, where the store can make one. Treat it like a password until it ends.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo ui link --read-only
  qo ui link --for 15m --go tasks?tab=failed
  qo ui link --role arn:aws:iam::123456789012:role/qo-operator
  qo ui link --allow-long-lived     for a server on this machine")]
pub struct UiLinkArgs {
    /// A session that can look and not act
    #[arg(long)]
    pub read_only: bool,
    /// How long the session lasts, 15 minutes to 12 hours
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = values::positive_duration)]
    pub lasts: Duration,
    /// The role that the session has
    #[arg(long, value_name = "ARN")]
    pub role: Option<String>,
    /// Hand over keys that do not end by themselves, if no session can be made
    #[arg(long)]
    pub allow_long_lived: bool,
    /// Where the dashboard is; in the bucket's own `ui/`, if not said
    #[arg(long, value_name = "URL")]
    pub page: Option<String>,
    /// Which of its pages to open
    #[arg(long, value_name = "PAGE")]
    pub go: Option<String>,
}
