//! The `qo` command: everything is in the library.

use std::process::ExitCode;

/// The broker allocates and frees several times for each task, on several threads; the system's allocator took most of its
/// time there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    qo_cli::main()
}
