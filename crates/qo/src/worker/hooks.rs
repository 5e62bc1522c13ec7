//! What a program wants to hear of every attempt, whatever its type.
//!
//! Hooks run where handlers run, and never decide anything: one that panics is logged, and one that takes longer than the
//! worker's grace is dropped.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::attempt::panic_message;
use super::{Context, Outcome, TaskError};

/// Hears of every attempt of a worker.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// A handler is about to be called.
    async fn before(&self, context: &Context) {
        let _ = context;
    }

    /// An attempt has ended, and what came of it is written.
    async fn after(&self, context: &Context, outcome: &Outcome) {
        let _ = (context, outcome);
    }

    /// An attempt has ended with an error; [`Hook::after`] follows.
    async fn error(&self, context: &Context, error: &TaskError) {
        let _ = (context, error);
    }
}

/// All hooks of a worker, in the order in which they were given.
pub(super) type Hooks = Arc<[Box<dyn Hook>]>;

/// Calls each hook, one after the other.
pub(super) async fn call_each<'a>(
    hooks: &'a Hooks,
    call: impl Fn(&'a dyn Hook) -> BoxFuture<'a, ()>,
) {
    for hook in hooks.iter() {
        let called = AssertUnwindSafe(async { call(hook.as_ref()).await }).catch_unwind();
        if let Err(panic) = called.await {
            let message = panic_message(panic.as_ref());
            tracing::error!(message, "a hook panicked; going on without it");
        }
    }
}
