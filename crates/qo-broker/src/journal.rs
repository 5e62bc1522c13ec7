//! What makes the changes of a group durable.

use async_trait::async_trait;
use qo_core::queue_state::Changes;
use qo_core::{QueueName, QueueState, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::watch::TaskChange;
use qo_store::runtime::BoxFuture;

use super::message::QueuedMessage;

/// What one group changed.
#[derive(Debug, Default)]
pub(super) struct GroupChanges {
    /// Tasks that are new or different.
    pub(super) tasks: Vec<TaskId>,
    /// Those of them that are new, in the order of their ids once the group is formed.
    pub(super) submitted: Vec<TaskId>,
    /// Tasks that are gone, as they were.
    pub(super) removed: Vec<Task>,
    /// Queues that were paused or resumed.
    pub(super) queues: Vec<QueueName>,
    /// Whether a task may be claimable now that was not before.
    pub(super) woke: bool,
    /// Whether somebody will be told what the state holds, and not only that there is nothing to claim.
    pub(super) reads: bool,
    /// How many bytes of inputs the group's submits bring.
    pub(super) input_bytes: u64,
    /// What watchers will be told, if any listens.
    pub(super) told: Option<Vec<TaskChange>>,
}

impl GroupChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.removed.is_empty() && self.queues.is_empty()
    }

    pub(super) fn add(&mut self, changes: Changes) {
        self.tasks.extend(changes.tasks);
        self.queues.extend(changes.queues);
    }
}

/// What became of a group.
pub(super) enum Committed {
    /// It is durable, or it changed nothing and what it was answered from is the newest there is.
    Done,
    /// It is on its way, and stays in order. When this fails, the journal is over.
    #[cfg_attr(
        not(feature = "slate"),
        expect(dead_code, reason = "only the journal on SlateDB returns it")
    )]
    Later(BoxFuture<Result<(), EngineError>>),
    /// Somebody else was first. Nothing was written; load, apply again and try again.
    Lost,
    /// Nothing is known to be written, and the state must be loaded again before anything else.
    Failed(EngineError),
}

/// Something that the state does not hold but the journal may.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Want {
    /// A task that has come to its end.
    Task(TaskId),
    /// The task that holds an idempotency key.
    #[cfg_attr(
        not(feature = "slate"),
        expect(dead_code, reason = "only the journal on SlateDB returns it")
    )]
    Key(qo_core::task::ScopedKey),
}

/// What was found.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A task.
    #[cfg_attr(
        not(feature = "slate"),
        expect(dead_code, reason = "only the journal on SlateDB returns it")
    )]
    Task(Box<Task>),
    /// The id of the task that holds the key.
    #[cfg_attr(
        not(feature = "slate"),
        expect(dead_code, reason = "only the journal on SlateDB returns it")
    )]
    Holder(TaskId),
}

/// Makes the changes of a group durable with one write.
#[async_trait]
pub(super) trait Journal: Send + 'static {
    /// Whether the state must be loaded before anything can be applied to it.
    fn must_load(&self) -> bool;

    /// Brings the state to what is stored.
    async fn load(&mut self, state: &mut QueueState) -> Result<(), EngineError>;

    /// Makes the changes durable. Where there are none, makes sure that the state is the newest there is.
    async fn commit(
        &mut self,
        state: &mut QueueState,
        changes: &GroupChanges,
        now: Timestamp,
    ) -> Committed;

    /// Whether others may change what is stored at any time, and how often to look while claims wait, and while none does.
    fn poll(&self) -> Option<Poll> {
        None
    }

    /// How many groups may be on their way at once.
    fn in_flight_max(&self) -> usize {
        1
    }

    /// Whether a submit that brings so many bytes beyond what the group brings already still has its place.
    fn admit(&self, _group_bytes: u64, _bytes: u64) -> Result<(), EngineError> {
        Ok(())
    }

    /// Drops tasks that were kept long enough after their end.
    fn retire(&mut self, _state: &mut QueueState, _changes: &mut GroupChanges, _now: Timestamp) {}

    /// What must be looked up before an entry can be applied.
    fn want(&self, _state: &QueueState, _queued: &QueuedMessage) -> Option<Want> {
        None
    }

    /// Looks something up, beside the loop.
    fn fetch(&self, _want: Want) -> BoxFuture<Result<Found, EngineError>> {
        Box::pin(async { Ok(Found::Nothing) })
    }

    /// Notes that what was looked up is now in the state.
    fn took_in(&mut self, _task: &Task) {}

    /// Adds what is known of tasks that the state does not hold.
    fn add_stats(&self, _stats: &mut qo_engine::api::Stats, _now: Timestamp) {}

    /// Resolves when the journal has learned that it is over, though nothing was written.
    fn over(&self) -> BoxFuture<EngineError> {
        Box::pin(std::future::pending())
    }

    /// Ends cleanly.
    async fn close(&mut self);
}

/// How often to look whether others have changed what is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Poll {
    /// While claims wait.
    pub(super) waiting: std::time::Duration,
    /// While none does.
    pub(super) idle: std::time::Duration,
}
