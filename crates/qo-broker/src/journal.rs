//! The journal, which makes the changes of a group durable.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use async_trait::async_trait;
use qo_core::queue_state::Changes;
use qo_core::task::ScopedKey;
use qo_core::{DocumentId, PauseTarget, QueueState, Task, TaskId, Timestamp};
use qo_engine::watch::TaskChange;
use qo_engine::{EngineError, Measurement};
use qo_store::runtime::BoxFuture;

use super::command::Command;
use super::message::Message;

/// The changes of one group.
#[derive(Debug, Default)]
pub(super) struct GroupChanges {
    /// New and changed tasks.
    pub(super) tasks: Vec<TaskId>,
    /// The new ones among them, sorted by id once the group is formed.
    pub(super) submitted: Vec<TaskId>,
    /// Those among them whose input was replaced.
    pub(super) inputs: Vec<TaskId>,
    /// Removed tasks, as they were before.
    pub(super) removed: Vec<Task>,
    /// Queues and types that were paused or resumed, or whose reason has changed.
    pub(super) pauses: Vec<PauseTarget>,
    /// Documents that were written or removed.
    pub(super) documents: Vec<DocumentId>,
    /// Whether a task may have become claimable.
    pub(super) may_be_claimable: bool,
    /// Whether a response says more about the state than that there is nothing to claim.
    pub(super) reads_state: bool,
    /// The size of the records and inputs that the group submits.
    pub(super) input_bytes: u64,
    /// The commands that changed something, if the journal names them.
    pub(super) commands: Option<Vec<Command>>,
    /// The changes to notify watchers of, if there are watchers.
    pub(super) watched: Option<Vec<TaskChange>>,
    /// The measurements of the changes, if a watcher measures.
    pub(super) measured: Option<Vec<Measurement>>,
}

impl GroupChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.removed.is_empty()
            && self.pauses.is_empty()
            && self.documents.is_empty()
    }

    pub(super) fn add(&mut self, changes: Changes) {
        self.tasks.extend(changes.tasks);
        self.inputs.extend(changes.inputs);
        self.pauses.extend(changes.pauses);
        for id in changes.documents {
            // Each claim under a limit changes the same document.
            if !self.documents.contains(&id) {
                self.documents.push(id);
            }
        }
    }
}

/// The outcome of committing a group.
pub(super) enum CommitOutcome {
    /// The group is durable, or it changed nothing and its responses reflect the newest state.
    Durable,
    /// The write is in flight and stays in order. It resolves with the index of the group, if it is an entry of a replicated log. If it
    /// fails, the journal cannot be used any more.
    #[cfg_attr(
        not(feature = "rows"),
        expect(dead_code, reason = "only the journal of rows returns it")
    )]
    InFlight(BoxFuture<Result<Option<NonZeroU64>, EngineError>>),
    /// Another process wrote first. Nothing was written: load, apply the group again and retry.
    Conflict,
    /// It is unknown whether the group was written. The state must be loaded before anything else.
    Failed(EngineError),
}

/// What a lookup has found.
#[derive(Debug, Default)]
pub(super) struct LookedUp {
    /// The finished tasks.
    pub(super) tasks: Vec<Task>,
    /// The finished tasks that cannot be read, because they are damaged or of a later version. They concern only those who name them.
    pub(super) unreadable: BTreeMap<TaskId, EngineError>,
}

/// What a message needs to know of the journal, because the state does not hold it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Lookup {
    /// Tasks, which may have finished.
    pub(super) ids: Vec<TaskId>,
    /// Idempotency keys, which finished tasks may hold.
    pub(super) keys: Vec<ScopedKey>,
    /// What the state holds now. It may leave the state before the lookup ends, which outdates the lookup.
    pub(super) held: HeldNames,
}

/// Tasks and idempotency keys that the state holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct HeldNames {
    pub(super) ids: Vec<TaskId>,
    pub(super) keys: Vec<ScopedKey>,
}

/// Makes the changes of a group durable with one write.
#[async_trait]
pub(super) trait Journal: Send + 'static {
    /// Whether the state must be loaded before anything can be applied to it.
    fn must_load(&self) -> bool;

    /// Updates the state to what is stored.
    async fn load(&mut self, state: &mut QueueState) -> Result<(), EngineError>;

    /// Makes the changes durable. Without changes, checks that the state is the newest.
    async fn commit(
        &mut self,
        state: &mut QueueState,
        changes: &GroupChanges,
        now: Timestamp,
    ) -> CommitOutcome;

    /// How often to check for changes by other processes. `None` if only this process writes.
    fn poll_intervals(&self) -> Option<PollIntervals> {
        None
    }

    /// How many groups may be in flight at once.
    fn in_flight_max(&self) -> usize {
        1
    }

    /// Whether the changes of a group must name its commands.
    fn names_commands(&self) -> bool {
        false
    }

    /// How long to leave the store to other processes before the next write. `at` is the runtime's monotonic time.
    fn rest(&mut self, _at: Duration) -> Duration {
        Duration::ZERO
    }

    /// How long to wait before a group is applied again that has lost so many races.
    fn pause_after_losses(&self, _lost: u32) -> Duration {
        Duration::ZERO
    }

    /// Rejects a submit of `bytes` if it does not fit in addition to the `group_bytes` that the group submits already.
    fn admit(&self, _group_bytes: u64, _bytes: u64) -> Result<(), EngineError> {
        Ok(())
    }

    /// Drops finished tasks whose retention is over.
    fn retire(&mut self, _state: &mut QueueState, _changes: &mut GroupChanges, _now: Timestamp) {}

    /// What must be looked up before a message can be applied.
    fn lookup_needed(
        &self,
        _state: &QueueState,
        _message: &Message,
        _now: Timestamp,
    ) -> Option<Lookup> {
        None
    }

    /// Finds finished tasks, concurrently with the loop.
    fn look_up(&self, _lookup: Lookup) -> BoxFuture<Result<LookedUp, EngineError>> {
        Box::pin(async { Ok(LookedUp::default()) })
    }

    /// Records that a task that was looked up is now in the state.
    fn task_loaded(&mut self, _task: &Task) {}

    /// Adds the counts of tasks that the state does not hold.
    fn add_stats(&self, _stats: &mut qo_engine::api::Stats, _state: &QueueState, _now: Timestamp) {}

    /// Resolves when the journal learns, without a write, that it cannot be used any more.
    fn ended(&self) -> BoxFuture<EngineError> {
        Box::pin(std::future::pending())
    }

    /// Closes the journal cleanly.
    async fn close(&mut self);
}

/// How often to check whether other processes have changed what is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollIntervals {
    /// While claims wait.
    pub(super) waiting: Duration,
    /// While no claim waits.
    pub(super) idle: Duration,
}
