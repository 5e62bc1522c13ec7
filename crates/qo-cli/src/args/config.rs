//! `qo config`.

use clap::Args;

/// Arguments of `qo config`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo config
  qo --profile production config
  qo config --json | jq -r .store.description")]
pub struct ConfigArgs {}
