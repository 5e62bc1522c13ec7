//! `qo token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use qo::{QueueName, TaskType};
use qo_server::tokens::{Scope, TokenLimits};

use super::values;

/// Arguments of `qo token`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo token create --name web --scope submit
  qo token create --name workers --scope work --for 90d
  qo token list
  qo token revoke 0123456789abcdef
  qo token create --name web --scope submit --store cluster://10.0.0.5,10.0.0.6,10.0.0.7 --secret-file secret")]
#[expect(clippy::doc_markdown, reason = "the comments are help texts")]
pub struct TokenArgs {
    /// File with the secret of the cluster that --store names, instead of a token in QO_TOKEN [env: QO_CLUSTER_SECRET, the secret itself]
    #[arg(long, global = true, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The subcommand.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The subcommands of `qo token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it
    ///
    /// The token cannot be shown again: the store holds only its hash.
    Create(TokenCreateArgs),
    /// List tokens, without their secrets
    List,
    /// Revoke a token; servers reject it within seconds
    Revoke(TokenRevokeArgs),
}

/// Arguments of `qo token create`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo token create --name web --scope submit --scope read
  qo token create --name mailer --scope work --queue mail --type send_email
  QO_TOKEN=$(qo token create --name laptop --scope admin --for 12h)")]
pub struct TokenCreateArgs {
    /// Name of the token
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Permission: submit, work (claim and finish tasks), read or admin (everything); repeatable, or comma-separated
    #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',')]
    pub scope: Vec<Scope>,
    /// Limit the token to this queue; repeatable, or comma-separated
    #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
    pub queue: Vec<QueueName>,
    /// Limit the token to this task type; repeatable, or comma-separated
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub task_type: Vec<TaskType>,
    /// How long the token is valid [default: until revoked]
    #[arg(long = "for", value_name = "DURATION", value_parser = values::positive_duration)]
    pub valid_for: Option<Duration>,
}

impl TokenCreateArgs {
    /// The queues and types to which the token is limited.
    pub fn limits(&self) -> TokenLimits {
        TokenLimits {
            queues: self.queue.iter().cloned().collect(),
            types: self.task_type.iter().cloned().collect(),
        }
    }
}

/// Arguments of `qo token revoke`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo token list
  qo token revoke 0123456789abcdef")]
pub struct TokenRevokeArgs {
    /// Token id, as shown by `qo token list`
    #[arg(value_name = "ID")]
    pub id: String,
}
