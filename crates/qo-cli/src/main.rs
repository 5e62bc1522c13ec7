//! The `qo` command: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    qo_cli::main()
}
