//! `qo key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use qo::encryption::KeyId;

/// Arguments of `qo key`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo key generate --out qo.keys
  qo key generate --id 2026-12 >> qo.keys
  QO_ENCRYPTION_KEY_FILE=qo.keys qo key list")]
pub struct KeyArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// The subcommands of `qo key`.
#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Create a random key and print it, or write it to a new file
    ///
    /// Sends no request. Keep the key: without it, nobody can read what it encrypted.
    Generate(KeyGenerateArgs),
    /// List the names of the configured keys
    ///
    /// The first key encrypts; all of them decrypt. Secrets are not shown.
    List,
}

/// Arguments of `qo key generate`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo key generate --out qo.keys
  qo key generate --id payments-2026
  aws ssm put-parameter --type SecureString --name qo-keys --value \"$(qo key generate)\"")]
pub struct KeyGenerateArgs {
    /// Name of the key, stored unencrypted with everything that it encrypts: 1 to 32 letters, digits, dots, hyphens and underscores [default: today's date]
    #[arg(long, value_name = "NAME")]
    pub id: Option<KeyId>,
    /// Write the key to this new file, readable only by you
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
