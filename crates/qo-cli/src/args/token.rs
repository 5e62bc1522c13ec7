//! `qo token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use qo_server::tokens::Scope;

use super::values;

/// Makes, lists and revokes the tokens with which clients come in to `qo serve`. They are kept in the store, and only as hashes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo token create --name web --scope submit
  qo token create --name workers --scope work --for 90d
  qo token list
  qo token revoke 0123456789abcdef")]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What to do with tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it; it is shown this once
    Create(TokenCreateArgs),
    /// List the tokens that there are, without their secrets
    List,
    /// Make a token worthless; servers notice within seconds
    Revoke(TokenRevokeArgs),
}

/// What `qo token create` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo token create --name web --scope submit --scope read
  QO_TOKEN=$(qo token create --name laptop --scope admin --for 12h)")]
pub struct TokenCreateArgs {
    /// What to call it
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// What it allows: submit, work (claim and finish tasks), read, admin (everything); can be given several times, or with commas
    #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',')]
    pub scope: Vec<Scope>,
    /// How long it works; until it is revoked, if not said
    #[arg(long = "for", value_name = "DURATION", value_parser = values::positive_duration)]
    pub valid_for: Option<Duration>,
}

/// What `qo token revoke` takes.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo token list
  qo token revoke 0123456789abcdef")]
pub struct TokenRevokeArgs {
    /// The token's id, as `qo token list` shows it
    #[arg(value_name = "ID")]
    pub id: String,
}
