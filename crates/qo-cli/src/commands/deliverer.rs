//! Delivers the notifications of webhooks in a process that serves the queue.
//!
//! It is a worker for the task type of deliveries. It runs while this process leads.

use std::sync::Arc;
use std::time::Duration;

use qo::{Queue, Worker};
use qo_core::webhook::delivery::QUEUE;
use qo_store::runtime::Runtime;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::worker::http_client;
use crate::failure::Failure;
use crate::handlers::webhook::WebhookHandler;

/// How many notifications are sent at once. Most of the time is spent waiting for receivers.
const CONCURRENCY: usize = 32;
/// How often it is checked whether this process leads, and the pause after an error.
const LEADER_CHECK: Duration = Duration::from_secs(1);
/// How long a stop waits for notifications that are being sent. Those that are not are sent again by the next process.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// A running deliverer.
pub(super) struct Deliverer {
    stop: CancellationToken,
    stopped: oneshot::Receiver<()>,
}

/// The handler of deliveries.
pub(super) fn handler(
    queue: &Queue,
    allow_private: bool,
    runtime: &Arc<dyn Runtime>,
) -> Result<WebhookHandler, Failure> {
    let settings = http_client(allow_private, runtime)?;
    Ok(WebhookHandler::new(queue.clone(), settings, allow_private))
}

impl Deliverer {
    /// Delivers while `is_leading` says so.
    pub(super) fn start(
        queue: &Queue,
        allow_private: bool,
        runtime: &Arc<dyn Runtime>,
        is_leading: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        // Fails here, and not in the background, if the client cannot be created.
        handler(queue, allow_private, runtime)?;
        let (stop, (ended, stopped)) = (CancellationToken::new(), oneshot::channel());
        let (queue, timer, token) = (queue.clone(), Arc::clone(runtime), stop.clone());
        runtime.spawn(Box::pin(async move {
            let delivering = deliver(&queue, allow_private, &timer, &is_leading, &token);
            delivering.await;
            let _ = ended.send(());
        }));
        Ok(Self { stop, stopped })
    }

    /// Stops, and waits for notifications that are being sent.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.stopped.await;
    }
}

async fn deliver(
    queue: &Queue,
    allow_private: bool,
    runtime: &Arc<dyn Runtime>,
    is_leading: &(impl Fn() -> bool + Sync),
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        if is_leading() {
            let worker = handler(queue, allow_private, runtime).and_then(|handler| {
                let builder = Worker::builder(queue.clone())
                    .queues([QUEUE])
                    .concurrency(CONCURRENCY)
                    .shutdown_deadline(SHUTDOWN)
                    .grace(Duration::from_secs(1))
                    .no_maintenance()
                    .no_schedules();
                Ok(builder.handler(handler).build()?)
            });
            let ended = match worker {
                Ok(worker) => {
                    let until = until_not_leading(Arc::clone(runtime), is_leading, stop);
                    worker.run_until(until).await.map_err(Failure::from)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::warn!(error = %error.message, "delivering to webhooks stopped; trying again");
            }
        }
        pause(runtime.as_ref(), stop).await;
    }
}

async fn until_not_leading(
    runtime: Arc<dyn Runtime>,
    is_leading: &(impl Fn() -> bool + Sync),
    stop: &CancellationToken,
) {
    while is_leading() && !stop.is_cancelled() {
        pause(runtime.as_ref(), stop).await;
    }
}

async fn pause(runtime: &dyn Runtime, stop: &CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = runtime.sleep(LEADER_CHECK) => {}
    }
}
