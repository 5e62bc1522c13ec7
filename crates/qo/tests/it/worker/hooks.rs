//! Hooks around attempts.

use std::sync::{Arc, Mutex};

use qo::async_trait;
use qo::testing::memory_queue;
use qo::{AttemptOutcome, Context, Hook, TaskError, Worker};

use super::{Gate, Job, soon, submit, while_time_passes};

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn note(&self, context: &Context, text: &str) {
        let name: Job = match context.task().input() {
            qo::Payload::Inline(json) => json.to_value().unwrap(),
            qo::Payload::Stored(_) => panic!("a small input"),
        };
        self.0.lock().unwrap().push(format!("{} {text}", name.name));
    }
}

#[async_trait]
impl Hook for Recorder {
    async fn before(&self, context: &Context) {
        self.note(context, "begins");
    }

    async fn after(&self, context: &Context, outcome: &AttemptOutcome) {
        let outcome = match outcome {
            AttemptOutcome::Completed => "completed",
            AttemptOutcome::Retried { .. } => "will be retried",
            AttemptOutcome::Failed => "failed",
            _ => "something else",
        };
        self.note(context, outcome);
    }

    async fn error(&self, context: &Context, error: &TaskError) {
        self.note(context, &format!("error: {error}"));
    }
}

struct Panicking;

#[async_trait]
impl Hook for Panicking {
    async fn before(&self, _: &Context) {
        panic!("before");
    }

    async fn after(&self, _: &Context, _: &AttemptOutcome) {
        panic!("after");
    }
}

/// Never returns.
struct Stuck(Gate);

#[async_trait]
impl Hook for Stuck {
    async fn after(&self, _: &Context, _: &AttemptOutcome) {
        self.0.open();
        std::future::pending::<()>().await;
    }
}

async fn work(job: Job, _: Context) -> Result<(), TaskError> {
    match job.name.as_str() {
        "good" => Ok(()),
        "bad" => Err(TaskError::permanent("spoilt")),
        _ => Err(TaskError::retryable("busy")),
    }
}

#[tokio::test]
async fn hooks_are_called_in_order_and_a_panic_of_one_is_harmless() {
    let (queue, _clock) = memory_queue().unwrap();
    let recorder = Recorder::default();
    let worker = Worker::builder(queue.clone())
        .hook(Panicking)
        .hook(recorder.clone())
        .handle::<Job>(work)
        .build()
        .unwrap();
    for name in ["good", "bad", "ugly"] {
        submit(&queue, name).await;
        worker.drain().await.unwrap();
    }
    assert_eq!(
        *recorder.0.lock().unwrap(),
        [
            "good begins",
            "good completed",
            "bad begins",
            "bad error: spoilt",
            "bad failed",
            "ugly begins",
            "ugly error: busy",
            "ugly will be retried",
        ]
    );
}

#[tokio::test]
async fn a_hook_that_never_returns_is_dropped_after_the_grace_period() {
    let (queue, clock) = memory_queue().unwrap();
    submit(&queue, "good").await;
    let gate = Gate::default();
    let worker = Worker::builder(queue)
        .hook(Stuck(gate.clone()))
        .handle::<Job>(work);
    let worker = worker.build().unwrap();
    let draining = soon("the drain", while_time_passes(&clock, worker.drain()));
    assert_eq!(draining.await.unwrap().completed, 1);
    assert_eq!(gate.opened(), 1);
}
