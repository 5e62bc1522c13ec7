//! One call of a handler: it runs on the handler threads, and the attempt's supervisor can abort it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable};
use qo_core::Json;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::hooks::{Hooks, call_each};
use super::runner::Runner;
use super::slots::Slot;
use super::{Context, TaskError, TaskHandler};

/// The result of a handler.
pub(super) type HandlerResult = Result<Option<Json>, TaskError>;

/// A running handler. Dropping this aborts it at its next `await`.
pub(super) struct HandlerCall {
    result: oneshot::Receiver<HandlerResult>,
    abort: AbortHandle,
}

impl HandlerCall {
    /// Calls a handler. It keeps the slot until it has returned or was dropped.
    pub(super) fn start(
        runner: &Runner,
        handler: Arc<dyn TaskHandler>,
        hooks: Hooks,
        input: Json,
        context: Context,
        slot: Slot,
    ) -> Self {
        let (done, result) = oneshot::channel();
        let (abort, registration) = AbortHandle::new_pair();
        let span = context.span().clone();
        let handling = async move {
            if !hooks.is_empty() {
                call_each(&hooks, |hook| hook.before(&context)).await;
            }
            let called = AssertUnwindSafe(async { handler.handle(input, context).await });
            let result = match called.catch_unwind().await {
                Ok(result) => result,
                Err(panic) => {
                    let message = panic_message(panic.as_ref());
                    tracing::warn!(message, "a handler panicked");
                    Err(TaskError::retryable(format_args!(
                        "the handler panicked: {message}"
                    )))
                }
            };
            // The receiver is gone if the attempt is over.
            let _ = done.send(result);
        };
        runner.spawn(Box::pin(async move {
            let _slot = slot;
            // Only `HandlerCall::drop` aborts.
            let _ = Abortable::new(handling, registration)
                .instrument(span)
                .await;
        }));
        Self { result, abort }
    }

    /// Waits for the handler's result.
    pub(super) async fn result(&mut self) -> HandlerResult {
        let result = (&mut self.result).await;
        // The sender was dropped: the handler threads were shut down, or a destructor of the handler panicked.
        result.unwrap_or_else(|_| {
            Err(TaskError::retryable(
                "the handler ended without a result; its threads were stopped",
            ))
        })
    }
}

impl Drop for HandlerCall {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// The message of a panic.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
