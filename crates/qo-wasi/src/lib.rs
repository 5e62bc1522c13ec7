//! Runs WASI programs in a sandbox.
//!
//! ```text
//!   bytes ──▶ Programs (compiled once, kept by address) ──▶ Program
//!                                                             │
//!   input stream ──▶ standard input ──▶ Sandbox::run ──▶ standard output ──▶ Output (a stream)
//!                                             │
//!                                             ├──▶ the end of standard error
//!                                             └──▶ exit code, or RunError
//! ```
//!
//! A program is a WASI preview 1 module or a preview 2 command. It may be hostile:
//!
//! | attack | defence |
//! | --- | --- |
//! | an endless loop | the program yields every 10 ms (`ticker.rs`); dropping the future of a run ends it there |
//! | a memory or table bomb | one budget for all memories and one for all tables of a run (`limits.rs`) |
//! | an output flood | output beyond the limit ends the run; at most 256 KiB wait for the reader (`stdout.rs`) |
//! | a flood on standard error | only the end is kept (`stderr.rs`) |
//! | huge arguments to system calls | a limit per call, and on random bytes and open resources per run |
//! | deep recursion | a fixed stack; running out of it is a trap |
//! | a module that takes long to compile | one compilation at a time, of a module of bounded size, on a thread of its own |
//! | a forged artefact in the disk cache | a directory that only its owner can use, and a checksum of every file (`disk_cache.rs`) |

mod disk_cache;
mod error;
mod grants;
mod limits;
mod network;
mod program;
mod programs;
mod sandbox;
mod stderr;
mod stdin;
mod stdout;
mod ticker;

pub use disk_cache::DiskCacheError;
pub use error::{BadProgram, CompileError, RunError};
pub use grants::{Directory, Grants, GrantsError};
pub use limits::Limits;
pub use network::{Network, Peer};
pub use program::Program;
pub use programs::{Address, GetError, Programs};
pub use sandbox::{Ended, Exit, ProgramRun, Sandbox, SandboxConfig, SandboxError};
pub use stdin::Input;
pub use stdout::Output;
