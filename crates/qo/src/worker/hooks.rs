//! Hooks: callbacks around every attempt of a worker.
//!
//! Hooks run on the handler threads and do not affect the attempt: a panic is logged, and a hook that exceeds the worker's grace
//! period is dropped.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::attempt::panic_message;
use super::{AttemptOutcome, Context, TaskError};

/// Callbacks around every attempt of a worker, for instance for metrics. Add one with [`WorkerBuilder::hook`](super::WorkerBuilder::hook).
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Called before a handler.
    async fn before(&self, context: &Context) {
        let _ = context;
    }

    /// Called after the outcome of an attempt was stored.
    async fn after(&self, context: &Context, outcome: &AttemptOutcome) {
        let _ = (context, outcome);
    }

    /// Called after an attempt with an error, before [`Hook::after`].
    async fn error(&self, context: &Context, error: &TaskError) {
        let _ = (context, error);
    }
}

/// All hooks of a worker, in the order in which they were added.
pub(super) type Hooks = Arc<[Box<dyn Hook>]>;

/// Calls the hooks in order.
pub(super) async fn call_each<'a>(
    hooks: &'a Hooks,
    call: impl Fn(&'a dyn Hook) -> BoxFuture<'a, ()>,
) {
    for hook in hooks.iter() {
        let called = AssertUnwindSafe(async { call(hook.as_ref()).await }).catch_unwind();
        if let Err(panic) = called.await {
            let message = panic_message(panic.as_ref());
            tracing::error!(message, "a hook panicked");
        }
    }
}
