//! Runs the tests' S3 server until its standard input ends or it is interrupted.
//!
//! `cargo run -p qo-testkit --bin qo-test-s3` prints what to export, so that tests, or anything that speaks S3, use it.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use qo_testkit::{KitError, SeaweedFs};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qo-test-s3: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), KitError> {
    let server = SeaweedFs::start()?;
    let mut out = io::stdout().lock();
    for (name, value) in server.environment() {
        // Whoever started this may have gone; then standard input has ended too.
        let _ = writeln!(out, "export {name}={value}");
    }
    if let Some(dir) = server.data_dir() {
        let _ = writeln!(out, "# data in {}", dir.display());
    }
    if let Some((name, value)) = server.shell() {
        let _ = writeln!(out, "export {name}='{value}'");
    }
    let _ = out.flush();
    let mut input = io::stdin().lock();
    let mut buffer = [0; 1_024];
    while input.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    Ok(())
}
