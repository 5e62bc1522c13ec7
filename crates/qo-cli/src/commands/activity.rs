//! Activity of a worker in this process: a hook that counts attempts and reports each one that ends.
//!
//! A hook must never block the worker. Reports go through a bounded channel and are dropped when it is full, for example while
//! the terminal is stopped with Ctrl-S. The counts stay correct.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use qo::{AttemptOutcome, Context, Hook, QueueName, TaskError, TaskId, TaskType, Timestamp};
use qo_store::runtime::Runtime;
use tokio::sync::mpsc;

/// Capacity of the channel of ended attempts.
const CHANNEL_CAPACITY: usize = 4_096;

/// An attempt that has ended.
#[derive(Debug, Clone)]
pub(super) struct EndedAttempt {
    pub(super) at: Timestamp,
    pub(super) id: TaskId,
    pub(super) task_type: TaskType,
    pub(super) queue: QueueName,
    pub(super) attempt: u32,
    pub(super) took: Duration,
    pub(super) outcome: AttemptOutcome,
    pub(super) error: Option<String>,
}

#[cfg(test)]
impl EndedAttempt {
    /// A second attempt of a task of type `hello`.
    pub(super) fn example(outcome: AttemptOutcome, error: Option<&str>) -> Self {
        Self {
            at: "2026-01-01T10:00:00Z".parse().unwrap(),
            id: "550e8400-e29b-41d4-a716-446655440000".parse().unwrap(),
            task_type: "hello".parse().unwrap(),
            queue: QueueName::default(),
            attempt: 2,
            took: Duration::from_millis(120),
            outcome,
            error: error.map(str::to_owned),
        }
    }
}

/// Activity of a worker. Clones share their state.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    runtime: Arc<dyn Runtime>,
    ended: mpsc::Sender<EndedAttempt>,
    counts: Arc<Mutex<ActivityCounts>>,
}

#[derive(Debug, Default)]
struct ActivityCounts {
    running: HashMap<(TaskId, u32), RunningAttempt>,
    attempts: u64,
    finished: u64,
    last_change: Duration,
}

#[derive(Debug, Default)]
struct RunningAttempt {
    since: Duration,
    error: Option<String>,
}

impl Activity {
    /// Creates the hook and the channel on which it reports ended attempts.
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> (Self, mpsc::Receiver<EndedAttempt>) {
        let (ended, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let counts = ActivityCounts {
            last_change: runtime.monotonic(),
            ..ActivityCounts::default()
        };
        let activity = Self {
            runtime,
            ended,
            counts: Arc::new(Mutex::new(counts)),
        };
        (activity, receiver)
    }

    /// The number of running attempts.
    pub(super) fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// The number of ended attempts.
    pub(super) fn attempts(&self) -> u64 {
        self.lock().attempts
    }

    /// The number of ended attempts that finished their task.
    pub(super) fn finished(&self) -> u64 {
        self.lock().finished
    }

    /// How long no attempt has run; `None` while one runs.
    pub(super) fn idle(&self) -> Option<Duration> {
        let counts = self.lock();
        let idle = self.runtime.monotonic().saturating_sub(counts.last_change);
        counts.running.is_empty().then_some(idle)
    }

    fn lock(&self) -> MutexGuard<'_, ActivityCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Hook for Activity {
    async fn before(&self, context: &Context) {
        let since = self.runtime.monotonic();
        let mut counts = self.lock();
        counts.last_change = since;
        let running = RunningAttempt { since, error: None };
        counts
            .running
            .insert((context.id(), context.attempt()), running);
    }

    async fn error(&self, context: &Context, error: &TaskError) {
        let attempt = (context.id(), context.attempt());
        let since = self.runtime.monotonic();
        // An attempt can fail before its handler was called.
        let mut counts = self.lock();
        let running = counts.running.entry(attempt);
        let running = running.or_insert(RunningAttempt { since, error: None });
        running.error = Some(error.to_string());
    }

    async fn after(&self, context: &Context, outcome: &AttemptOutcome) {
        let monotonic = self.runtime.monotonic();
        let attempt = (context.id(), context.attempt());
        let running = {
            let mut counts = self.lock();
            counts.last_change = monotonic;
            counts.attempts += 1;
            if matches!(
                outcome,
                AttemptOutcome::Completed | AttemptOutcome::Failed | AttemptOutcome::Cancelled
            ) {
                counts.finished += 1;
            }
            // An attempt can end before its handler was called.
            counts.running.remove(&attempt).unwrap_or(RunningAttempt {
                since: monotonic,
                error: None,
            })
        };
        let task = context.task();
        let ended = EndedAttempt {
            at: self.runtime.now(),
            id: task.id,
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            attempt: context.attempt(),
            took: monotonic.saturating_sub(running.since),
            outcome: *outcome,
            error: running.error,
        };
        // The report is dropped if the channel is full or closed.
        let _ = self.ended.try_send(ended);
    }
}
