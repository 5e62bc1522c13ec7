//! `qo blob`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use qo::BlobAddress;

use super::values;

/// Arguments of `qo blob`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo blob put program.wasm
  qo blob get 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 --output program.wasm
  qo blob list
  qo blob gc --dry-run")]
pub struct BlobArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: BlobCommand,
}

/// The subcommands of `qo blob`.
#[derive(Debug, Clone, Subcommand)]
pub enum BlobCommand {
    /// Upload a file and print its address
    ///
    /// If the blob exists, it is not stored again. A blob is kept for at least a day, and longer if a task refers to it.
    Put(BlobPutArgs),
    /// Download a blob
    ///
    /// The bytes are verified against the address.
    Get(BlobGetArgs),
    /// List blobs by address
    List(BlobListArgs),
    /// Delete a blob, even if tasks refer to it
    Delete(BlobDeleteArgs),
    /// Delete the blobs that no task refers to
    ///
    /// A task refers to every blob whose address occurs in its input, its output or its last error. Blobs that were uploaded or touched
    /// within the grace time are kept. It is safe to run this at any time, even concurrently.
    Gc(BlobGcArgs),
}

/// Arguments of `qo blob put`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo blob put program.wasm
  gzip -c data.csv | qo blob put -")]
pub struct BlobPutArgs {
    /// File to upload; - reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Address that the file must have; if it differs, nothing is stored
    #[arg(long, value_name = "ADDRESS")]
    pub expect: Option<BlobAddress>,
}

/// Arguments of `qo blob get`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo blob get 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 > data
  qo blob get 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 --output data")]
pub struct BlobGetArgs {
    /// Address of the blob
    #[arg(value_name = "ADDRESS")]
    pub address: BlobAddress,
    /// File to write; it appears when the blob is complete and verified [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `qo blob list`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo blob list
  qo blob list --limit 0 --json")]
pub struct BlobListArgs {
    /// Maximum number of blobs; 0 lists all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
    /// List the blobs after this address
    #[arg(long, value_name = "ADDRESS")]
    pub after: Option<BlobAddress>,
}

/// Arguments of `qo blob delete`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo blob delete 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")]
pub struct BlobDeleteArgs {
    /// Address of the blob
    #[arg(value_name = "ADDRESS")]
    pub address: BlobAddress,
}

/// Arguments of `qo blob gc`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo blob gc --dry-run
  qo blob gc --grace 7d")]
pub struct BlobGcArgs {
    /// Keep blobs that were uploaded or touched within this time; at least 1h
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = values::positive_duration)]
    pub grace: Duration,
    /// Count what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}
