//! One call of a handler: started where handlers run, stopped from where its supervisor is.

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

/// What a handler gave.
pub(super) type HandlerResult = Result<Option<Json>, TaskError>;

/// A handler that was called. It is stopped at its next `await` when this is dropped.
pub(super) struct Call {
    result: oneshot::Receiver<HandlerResult>,
    abort: AbortHandle,
}

impl Call {
    /// Calls a handler. The slot is held until the handler is really gone.
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
        let handled = async move {
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
            // Nobody waits if the attempt is over.
            let _ = done.send(result);
        };
        runner.spawn(Box::pin(async move {
            let _slot = slot;
            // Whether it was aborted is known to whoever did it.
            let _ = Abortable::new(handled, registration).instrument(span).await;
        }));
        Self { result, abort }
    }

    /// Waits for the handler's result.
    pub(super) async fn result(&mut self) -> HandlerResult {
        let result = (&mut self.result).await;
        // Only where the threads end before the handler does, or where dropping what it held panicked.
        result.unwrap_or_else(|_| {
            Err(TaskError::retryable(
                "the handler ended without a result; its threads were stopped",
            ))
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// What a panic says.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why")
}
