//! What a worker in this process is doing: a hook that counts attempts and tells of each that has ended.
//!
//! A hook must never hold a worker up. What it tells goes through a bounded channel, and is left out if nobody takes it, as when
//! a terminal is stopped with Ctrl-S; the counts stay right.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use qo::{Context, Hook, Outcome, QueueName, TaskError, TaskId, TaskType, Timestamp};
use qo_store::runtime::Runtime;
use tokio::sync::mpsc;

/// How many ended attempts wait to be shown.
const UNSHOWN_MAX: usize = 4_096;

/// An attempt that has ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) at: Timestamp,
    pub(super) id: TaskId,
    pub(super) task_type: TaskType,
    pub(super) queue: QueueName,
    pub(super) attempt: u32,
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
}

/// What a worker is doing. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    runtime: Arc<dyn Runtime>,
    ended: mpsc::Sender<Ended>,
    now: Arc<Mutex<Now>>,
}

#[derive(Debug, Default)]
struct Now {
    running: HashMap<(TaskId, u32), Running>,
    attempts: u64,
    finished: u64,
    last_change: Duration,
}

#[derive(Debug, Default)]
struct Running {
    since: Duration,
    error: Option<String>,
}

impl Activity {
    /// The hook, and where it tells of ended attempts.
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> (Self, mpsc::Receiver<Ended>) {
        let (ended, receiver) = mpsc::channel(UNSHOWN_MAX);
        let now = Now {
            last_change: runtime.monotonic(),
            ..Now::default()
        };
        let activity = Self {
            runtime,
            ended,
            now: Arc::new(Mutex::new(now)),
        };
        (activity, receiver)
    }

    /// How many attempts run.
    pub(super) fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// How many attempts have ended.
    pub(super) fn attempts(&self) -> u64 {
        self.lock().attempts
    }

    /// How many of them were their task's last.
    pub(super) fn finished(&self) -> u64 {
        self.lock().finished
    }

    /// How long nothing has run; nothing, while something does.
    pub(super) fn idle(&self) -> Option<Duration> {
        let now = self.lock();
        let idle = self.runtime.monotonic().saturating_sub(now.last_change);
        now.running.is_empty().then_some(idle)
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Hook for Activity {
    async fn before(&self, context: &Context) {
        let since = self.runtime.monotonic();
        let mut now = self.lock();
        now.last_change = since;
        let running = Running { since, error: None };
        now.running
            .insert((context.id(), context.attempt()), running);
    }

    async fn error(&self, context: &Context, error: &TaskError) {
        let attempt = (context.id(), context.attempt());
        if let Some(running) = self.lock().running.get_mut(&attempt) {
            running.error = Some(error.to_string());
        }
    }

    async fn after(&self, context: &Context, outcome: &Outcome) {
        let monotonic = self.runtime.monotonic();
        let attempt = (context.id(), context.attempt());
        let running = {
            let mut now = self.lock();
            now.last_change = monotonic;
            now.attempts += 1;
            if matches!(
                outcome,
                Outcome::Completed | Outcome::Failed | Outcome::Cancelled
            ) {
                now.finished += 1;
            }
            // An attempt can end before its handler was called.
            now.running.remove(&attempt).unwrap_or(Running {
                since: monotonic,
                error: None,
            })
        };
        let task = context.task();
        let ended = Ended {
            at: self.runtime.now(),
            id: task.id,
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            attempt: context.attempt(),
            took: monotonic.saturating_sub(running.since),
            outcome: *outcome,
            error: running.error,
        };
        // Full: nobody looks. Closed: nobody looks any more.
        let _ = self.ended.try_send(ended);
    }
}
