//! Integration tests of the library, in one binary. Most scenarios run on every kind of store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

/// Runs a scenario on memory, on SQLite and on a real S3 server.
macro_rules! on_every_store {
    ($scenario:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn on_memory() {
            $scenario($crate::test_queue::TestQueue::memory(module_path!())).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn on_sqlite() {
            $scenario($crate::test_queue::TestQueue::sqlite()).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn on_seaweedfs() {
            $scenario($crate::test_queue::TestQueue::seaweedfs()).await;
        }
    };
}

mod bulk;
mod concurrent_claim;
mod connecting;
mod encrypted_schedules;
mod encryption;
mod graceful_shutdown;
mod index_cleanup;
mod pagination_starvation;
mod public_types;
mod queue_api;
mod retry_exhaustion;
mod schedules;
mod submit_claim_complete;
mod test_queue;
mod timeout_recovery;
mod version_history;
mod worker;
