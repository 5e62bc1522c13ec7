//! `qo config`.

use clap::Args;

/// Shows the settings that hold, and where each was said. It sends no request.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo config
  qo --profile production config
  qo config --json | jq -r .store.description")]
pub struct ConfigArgs {}
