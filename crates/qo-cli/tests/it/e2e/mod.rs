//! The command as people run it: real processes that share a store, on SQLite and on a real S3 server.
//!
//! Leases are short here and the monitor runs every second, so that half a minute in production takes seconds. No test waits for a fixed
//! time: each one waits for a condition, and fails after [`LIMIT`].

/// Runs a scenario on SQLite and on a real S3 server.
macro_rules! on_both_stores {
    ($scenario:ident) => {
        #[test]
        fn on_sqlite() {
            $scenario(&$crate::e2e::cli::TestCli::sqlite());
        }

        #[test]
        fn on_seaweedfs() {
            $scenario(&$crate::e2e::cli::TestCli::seaweedfs());
        }
    };
}

pub(crate) mod cli;
mod crowd;
mod first_steps;
mod killed_worker;
mod poison_pill;
pub(crate) mod processes;
mod replay;
mod stopping;
mod timeout;
#[cfg(feature = "wasi")]
mod wasi;
mod zombie;

use std::time::Duration;

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);
