//! End-to-end tests: real processes that share a store, on SQLite and on a real S3 server.
//!
//! Leases are short and the monitor checks them every second, so that recovery takes seconds. No test sleeps for a fixed time: each
//! waits for a condition and fails after [`LIMIT`].

/// Runs a scenario on SQLite and on a real S3 server.
macro_rules! on_both_stores {
    ($scenario:ident) => {
        #[test]
        fn on_sqlite() {
            $scenario(&$crate::e2e::store::TestStore::sqlite());
        }

        #[test]
        fn on_seaweedfs() {
            $scenario(&$crate::e2e::store::TestStore::seaweedfs());
        }
    };
}

mod crowd;
mod first_steps;
mod killed_worker;
mod poison_pill;
mod processes;
mod replay;
mod stopping;
pub(crate) mod store;
mod timeout;
mod zombie;

use std::time::Duration;

/// Time limit for any step on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);
