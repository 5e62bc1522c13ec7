//! The threads on which handlers run.
//!
//! Handlers may block their threads. A worker therefore runs them on threads of their own, apart from lease renewals and from the
//! rest of the program. In tests and simulations handlers run on the queue's runtime, which then decides the order of events.

use std::num::NonZero;
use std::sync::Arc;

use qo_store::runtime::{BoxFuture, Runtime};

use crate::error::Error;

/// With fewer threads, one blocking handler would stop all others.
const THREADS_MIN: usize = 2;

/// Where handlers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RunIn {
    /// On separate threads of the worker.
    #[default]
    Threads,
    /// On the queue's runtime.
    Runtime,
}

/// Runs handlers.
pub(super) enum Runner {
    Threads(Threads),
    Runtime(Arc<dyn Runtime>),
}

/// A tokio runtime for handlers.
pub(super) struct Threads {
    /// `Some` until this is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Runner {
    pub(super) fn start(
        run_in: RunIn,
        runtime: &Arc<dyn Runtime>,
        concurrency: usize,
    ) -> Result<Self, Error> {
        if run_in == RunIn::Runtime {
            return Ok(Self::Runtime(Arc::clone(runtime)));
        }
        let cores = std::thread::available_parallelism().map_or(THREADS_MIN, NonZero::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(concurrency.min(cores).max(THREADS_MIN))
            .thread_name("qo-handler")
            .enable_all()
            .build()
            .map_err(|error| Error::NoThreads {
                detail: error.to_string(),
            })?;
        Ok(Self::Threads(Threads {
            runtime: Some(runtime),
        }))
    }

    /// Runs a future in the background.
    pub(super) fn spawn(&self, future: BoxFuture<()>) {
        match self {
            Self::Threads(threads) => {
                if let Some(runtime) = &threads.runtime {
                    // Results are reported through channels, not through the join handle.
                    drop(runtime.spawn(future));
                }
            }
            Self::Runtime(runtime) => runtime.spawn(future),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Dropping a runtime inside an async context panics, because it waits for its threads; this does not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
