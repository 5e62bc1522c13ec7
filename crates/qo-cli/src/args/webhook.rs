//! `qo webhook`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use qo::{QueueName, TaskType, WebhookEvent};

/// Arguments of `qo webhook`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo webhook add billing https://example.org/hooks/qo
  qo webhook add alerts https://example.org/alerts --on failed --queue payments
  qo webhook test billing
  qo serve --webhooks                     delivers the notifications
  qo list --queue webhooks                the deliveries are tasks like any other")]
pub struct WebhookArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: WebhookCommand,
}

/// The subcommands of `qo webhook`.
#[derive(Debug, Clone, Subcommand)]
pub enum WebhookCommand {
    /// List webhooks
    List,
    /// Show one webhook, without its secret
    Show(WebhookNameArgs),
    /// Add a webhook, or replace the one with this name
    ///
    /// A new webhook gets a random secret, which is printed only once. An existing webhook keeps its secret, unless another one is given.
    Add(Box<WebhookAddArgs>),
    /// Remove a webhook; waiting notifications are no longer sent
    Remove(WebhookNameArgs),
    /// Send a notification of the type webhook.test
    Test(WebhookNameArgs),
}

/// Arguments of the subcommands that take a name only.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo webhook show billing
  qo webhook test billing --json")]
pub struct WebhookNameArgs {
    /// Name of the webhook
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Arguments of `qo webhook add`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo webhook add billing https://example.org/hooks/qo
  qo webhook add alerts https://example.org/alerts --on failed --type charge
  qo webhook add all https://example.org/all --on completed,failed,cancelled
  qo webhook add billing https://example.org/hooks/qo --secret-file secret.txt

The receiver gets a POST with the outcome of the task as JSON, and the headers webhook-id, webhook-timestamp and webhook-signature of Standard \
Webhooks. A response other than 2xx is retried for about 20 hours, except 410, which fails the delivery permanently. `qo serve --webhooks` or \
`qo worker --webhooks` must run to deliver it. See docs/guides/webhooks.md.")]
pub struct WebhookAddArgs {
    /// Name of the webhook
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Where to send the notifications
    #[arg(value_name = "URL")]
    pub url: String,
    /// Outcomes to send: completed, failed, cancelled
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        default_value = "completed,failed"
    )]
    pub on: Vec<WebhookEvent>,
    /// Only tasks of this queue; repeatable
    #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
    pub queue: Vec<QueueName>,
    /// Only tasks of this type; repeatable
    #[arg(long = "type", short = 't', value_name = "TYPE", value_delimiter = ',')]
    pub task_type: Vec<TaskType>,
    /// File with the secret that signs the notifications: whsec_ and 24 to 64 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}
