//! The `qo` command. The code is in the library.

use std::process::ExitCode;

/// The broker allocates and frees memory several times per task on several threads, and the system allocator would take most of
/// its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    qo_cli::main()
}
