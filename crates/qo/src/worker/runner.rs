//! Where handlers run.
//!
//! A handler may block its thread, whatever the documentation says. So a real worker has threads for handlers alone, and neither
//! the renewals nor the program that the worker is part of share them. In tests and in a simulator, handlers run where everything
//! runs, so that the runtime decides the order.

use std::num::NonZero;
use std::sync::Arc;

use qo_store::runtime::{BoxFuture, Runtime};

use crate::error::Error;

/// Fewer threads than this would let one handler that blocks stop all others.
const THREADS_MIN: usize = 2;

/// Where handlers are to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RunIn {
    /// On threads of the worker's own.
    #[default]
    Threads,
    /// Where the runtime runs everything.
    Runtime,
}

/// Runs handlers.
pub(super) enum Runner {
    Threads(Threads),
    Runtime(Arc<dyn Runtime>),
}

/// A runtime of the worker's own.
pub(super) struct Threads {
    /// There until it is dropped.
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

    /// Runs a future to its end, beside the caller.
    pub(super) fn spawn(&self, future: BoxFuture<()>) {
        match self {
            Self::Threads(threads) => {
                if let Some(runtime) = &threads.runtime {
                    // Whoever waits for the future's result sees when it is dropped.
                    drop(runtime.spawn(future));
                }
            }
            Self::Runtime(runtime) => runtime.spawn(future),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime must not be dropped where futures run, because it would wait for its threads; this does not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
