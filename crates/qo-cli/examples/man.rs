//! Writes the manual pages of `qo` into a directory: `cargo xtask man`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: man DIRECTORY")?;
    fs::create_dir_all(&directory)?;
    clap_mangen::generate_to(qo_cli::command(), &directory)?;
    println!("wrote the manual pages to {}", directory.display());
    Ok(())
}
