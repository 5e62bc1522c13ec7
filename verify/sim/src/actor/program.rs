//! The production worker, with handlers that fail.
//!
//! It is the library's own worker: its claims, attempt supervisors, renewals, heartbeats and shutdown run here as they do in
//! production, with the handlers in the simulated runtime instead of on threads.

use std::sync::Arc;

use async_trait::async_trait;
use qo::{Context, Queue, TaskError, TaskHandler, Worker};
use qo_core::Json;
use qo_core::webhook::delivery;

use super::{Caller, DELIVERY_TRIES, large, small};
use crate::faults::Trouble;

/// The number of tasks that it runs at once.
const CONCURRENCY: usize = 6;

struct Stumbling {
    task_type: &'static str,
    caller: Arc<Caller>,
    trouble: Arc<Trouble>,
}

#[async_trait]
impl TaskHandler for Stumbling {
    fn task_type(&self) -> &str {
        self.task_type
    }

    async fn handle(&self, _input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let caller = &self.caller;
        caller.sleep(caller.millis(0, 2_000)).await;
        let is_late = self.task_type == delivery::TASK_TYPE && context.attempt() > DELIVERY_TRIES;
        if self.trouble.is_over() || is_late {
            return Ok(Some(small(caller.below(1_000))));
        }
        match caller.below(12) {
            0 | 1 => Err(TaskError::retryable("the handler said no")),
            2 => Err(TaskError::permanent("the handler said never")),
            3 => Err(TaskError::Snooze(caller.millis(0, 9_000))),
            4 => Ok(Some(large(caller.below(u64::MAX)))),
            5 => {
                // Longer than a lease, unless it is cancelled.
                let work = caller.sleep(caller.millis(5_000, 80_000));
                tokio::select! {
                    biased;
                    () = context.cancellation().cancelled() => Err(TaskError::Cancelled),
                    () = work => Ok(None),
                }
            }
            6 => {
                // It ignores cancellation.
                caller.sleep(caller.millis(5_000, 60_000)).await;
                Ok(None)
            }
            7 => {
                for percent in [10.0, 50.0, 90.0] {
                    // Progress does not matter here.
                    let _ = context.progress(percent, "going on").await;
                    caller.sleep(caller.millis(0, 1_500)).await;
                }
                Ok(None)
            }
            8 => {
                let _ = context.renew().await;
                Ok(None)
            }
            _ => Ok(Some(small(caller.below(1_000)))),
        }
    }
}

/// Works until it is stopped, which happens to some workers after a while, or until it is killed.
pub(crate) async fn program(caller: Arc<Caller>, trouble: Arc<Trouble>) {
    let queue = Queue::new(Arc::clone(&caller.engine), Arc::clone(&caller.runtime));
    let handler = |task_type| Stumbling {
        task_type,
        caller: Arc::clone(&caller),
        trouble: Arc::clone(&trouble),
    };
    let mut worker = Worker::builder(queue)
        // Schedules have runs of their own.
        .no_schedules()
        .id(caller.worker.as_str())
        .queues(caller.queues.iter().map(ToString::to_string))
        .concurrency(CONCURRENCY)
        .shutdown_deadline(caller.millis(1_000, 40_000))
        .handlers_in_runtime()
        .no_maintenance();
    for task_type in &caller.types {
        worker = worker.handler(handler(*task_type));
    }
    let Ok(worker) = worker.build() else { return };
    let stops_after = (caller.below(2) == 0).then(|| caller.millis(5_000, 120_000));
    let stop = async {
        match stops_after {
            Some(time) if !trouble.is_over() => caller.sleep(time).await,
            _ => std::future::pending().await,
        }
    };
    // The journal records its calls.
    let _ = worker.run_until(stop).await;
    // A shutdown that was cut short leaves attempts behind.
    caller
        .journal
        .excuse(caller.process, std::time::Duration::ZERO);
}
