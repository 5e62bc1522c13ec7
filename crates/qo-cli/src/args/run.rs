//! `qo run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

/// Arguments of `qo run`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  qo run wordcount.wasm < book.txt > counts.txt
  qo run primes.wasm 1000000 --timeout 10m
  qo run thumbnail.wasm --stdin photo.ppm > small.ppm
  qo run 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08     a program that is already stored

A worker that runs WASI jobs must be running: qo worker --wasi

The exit code is that of the program. It is 8 if the program did not exit by itself, and 7 if --wait-timeout passed first.")]
pub struct RunArgs {
    /// WASI module or component: a file, or the address of a stored blob
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// Arguments of the program
    #[arg(value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
    /// Standard input of the program: a file, or - [default: standard input, unless it is a terminal]
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<PathBuf>,
    /// Queue [default: default]
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Time limit of each attempt [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = values::positive_duration)]
    pub timeout: Option<Duration>,
    /// Maximum number of retries [default: 2]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Stop waiting after this time; the job itself continues
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    pub wait_timeout: Option<Duration>,
}
