//! All live tasks of one queue space in memory, as a deterministic state machine.
//!
//! The broker and the cluster apply the same commands in the same order and reach the same state, because the result
//! depends only on the arguments: time, ids and jitter are part of the command, and every index is ordered.
//!
//! The cost of a command is logarithmic in the number of tasks and linear in the number of tasks that it moves. A
//! claim also costs the number of queues and types that it requests, of the limits that tasks wait for, and of the queues in which groups take
//! turns.
//!
//! | index | order | serves |
//! | --- | --- | --- |
//! | `tasks` | id | everything |
//! | `ready` | the limits that apply; queue, type, then priority, the turns of groups, available_at, submit order | claims |
//! | `lines` | ordering key in its queue, then place | claims: only the head of a line is ready |
//! | `leases` | lease_expires_at | [`Request::ExpireLeases`] |
//! | `expiries` | expires_at of pending tasks | [`Request::ExpireLeases`] |
//! | `created` | created_at, id | lists, newest first |
//! | `ended` | completed_at of settled tasks | engines that keep finished tasks for a while |
//! | `keys` | idempotency key in its scope | submits |

mod claims;
mod command;
mod counters;
mod deliveries;
mod documents;
mod fair;
mod fair_walk;
mod indexes;
mod limited;
mod lines;
mod position;
mod ready;
mod reserved;
mod submits;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use command::{Changes, Claim, Claimed, CommandOutcome, Request, StateCommand, WaitsBehind};
pub use counters::{Counters, StatusCounts};

use self::deliveries::Webhooks;
use self::indexes::IndexNames;
use self::limited::{LimitedReady, Selected};
use self::lines::Lines;
use self::position::IndexPosition;
use self::reserved::Reserved;
use crate::document::{DocumentId, StoredDocument};
use crate::id::{OpId, TaskId};
use crate::limit::{LimitUsage, LimitWait};
use crate::names::{DocumentName, QueueName, TaskType};
use crate::pause::{PauseNote, PauseTarget, Pauses};
use crate::queue_settings::QueueSettings;
use crate::retry::Jitter;
use crate::task::{Outline, ScopedKey, Status, Task};
use crate::time::Timestamp;
use crate::transition::{Action, Command, Rejection};

/// The most tasks that [`QueueState::waits_behind`] counts.
const AHEAD_MAX: usize = 10_000;

/// All live tasks of one queue space.
#[derive(Debug, Clone, Default)]
pub struct QueueState {
    /// Shared with responses to callers, so that nothing is copied for them.
    tasks: BTreeMap<TaskId, Arc<Task>>,
    ready: LimitedReady,
    lines: Lines,
    leases: BTreeSet<(Timestamp, TaskId)>,
    expiries: BTreeSet<(Timestamp, TaskId)>,
    ended: BTreeSet<(Timestamp, TaskId)>,
    created: BTreeSet<(Timestamp, TaskId)>,
    keys: BTreeMap<ScopedKey, TaskId>,
    pauses: Pauses,
    counters: Counters,
    last_sequence: u64,
    reserved: Reserved,
    documents: BTreeMap<DocumentId, StoredDocument>,
    /// What the documents about queues say.
    settings: BTreeMap<QueueName, QueueSettings>,
    webhooks: Webhooks,
}

impl QueueState {
    /// An empty queue space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a command.
    pub fn apply(&mut self, command: StateCommand, now: Timestamp) -> (CommandOutcome, Changes) {
        let StateCommand { op, request } = command;
        let mut changes = Changes::default();
        let outcome = match request {
            Request::Submit(submission) => self.submit(*submission, op, now, &mut changes),
            Request::Claim(claim) => self.claim(claim, op, now, &mut changes),
            Request::Task { id, action } => self.act(id, Command { op, action }, now, &mut changes),
            Request::ExpireLeases {
                limit,
                lease_margin_ms,
                jitter,
            } => {
                let ended_before = now.minus_millis(lease_margin_ms);
                self.expire_leases(limit, ended_before, jitter, op, now, &mut changes)
            }
            Request::Pause(target, note) => self.set_pause(target, Some(note), now, &mut changes),
            Request::Resume(target) => self.set_pause(target, None, now, &mut changes),
            Request::Purge(id) => self.purge(id, &mut changes),
            Request::Document(id, change) => self.change_document(id, change, now, &mut changes),
        };
        self.ready.forget_turns();
        self.submit_deliveries(op, now, &mut changes);
        (outcome, changes)
    }

    /// A task by its id.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).map(Arc::as_ref)
    }

    /// A task by its id. Later changes happen to a copy.
    pub fn shared(&self, id: TaskId) -> Option<Arc<Task>> {
        self.tasks.get(&id).cloned()
    }

    /// All tasks, ordered by id.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().map(Arc::as_ref)
    }

    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The number of tasks per queue and status.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The paused queues and types, which claims skip.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// The tasks after this id, ordered by id; all tasks if it is `None`.
    pub fn tasks_after(&self, id: Option<TaskId>) -> impl Iterator<Item = &Task> {
        let start = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.tasks
            .range((start, Bound::Unbounded))
            .map(|(_, task)| task.as_ref())
    }

    /// The tasks that were submitted before this one, newest first; all tasks if it is `None`. Tasks of the same time are ordered by id.
    pub fn tasks_before(&self, place: Option<(Timestamp, TaskId)>) -> impl Iterator<Item = &Task> {
        let end = place.map_or(Bound::Unbounded, Bound::Excluded);
        let earlier = self.created.range((Bound::Unbounded, end)).rev();
        earlier.filter_map(|(_, id)| self.task(*id))
    }

    /// The current or last holder of an idempotency key.
    pub fn key_holder(&self, key: &ScopedKey) -> Option<TaskId> {
        self.keys.get(key).copied()
    }

    /// The finished tasks, ordered by when they finished.
    pub fn ended(&self) -> impl ExactSizeIterator<Item = (Timestamp, TaskId)> {
        self.ended.iter().copied()
    }

    /// The last assigned sequence number.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// The first `limit` claimable tasks of these queues and types, most urgent first.
    pub fn due(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
        now: Timestamp,
        limit: usize,
    ) -> Vec<TaskId> {
        let due = self.due_by_urgency(queues, types, now, limit);
        due.into_iter().map(|(id, _)| id).collect()
    }

    /// The same with the time since when each is due, or, if groups take turns in its queue, since when the oldest claimable task of its
    /// priority there is due. These times grow within a priority.
    pub fn due_by_urgency(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
        now: Timestamp,
        limit: usize,
    ) -> Vec<(TaskId, Timestamp)> {
        let due = self.ready.due(queues, types, &self.pauses, now, limit);
        due.into_iter()
            .map(|(_, (since, _), id)| (id, since))
            .collect()
    }

    /// The number of claimable tasks of these queues and types, counted up to `limit`.
    pub fn count_due(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
        now: Timestamp,
        limit: usize,
    ) -> usize {
        self.due(queues, types, now, limit).len()
    }

    /// The due time of a queue's oldest due task.
    pub fn oldest_due(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        self.ready.oldest_due(queue, now)
    }

    /// The running tasks. Those whose leases end first come first.
    pub fn running(&self) -> impl Iterator<Item = &Task> {
        self.leases.iter().filter_map(|(_, id)| self.task(*id))
    }

    /// What a pending task waits behind, if it is not the head of its line.
    pub fn waits_behind(&self, id: TaskId) -> Option<WaitsBehind> {
        let task = self
            .task(id)
            .filter(|task| task.status == Status::Pending)?;
        let (line, place) = (task.ordering_line()?, task.place_in_line()?);
        let head = self.lines.head(&line).filter(|head| *head != id)?;
        Some(WaitsBehind {
            head,
            ahead: self.lines.ahead(&line, place, AHEAD_MAX) as u64,
            is_stopped: self.task(head).is_some_and(Task::stops_line),
        })
    }

    /// The limit that keeps a due task from starting, if there is one.
    pub fn waits_for_limit(&self, id: TaskId, now: Timestamp) -> Option<LimitWait> {
        let task = self.task(id)?;
        let is_due = task.status == Status::Pending && task.available_at <= now;
        is_due.then(|| self.ready.wait(Selected::of(task), now))?
    }

    /// What is used of each limit.
    pub fn limit_usage(&self, now: Timestamp) -> BTreeMap<DocumentName, LimitUsage> {
        self.ready.usages(now)
    }

    /// Whether any limit applies to a task, so that others may start when it ends.
    pub fn is_limited(&self, task: &Task) -> bool {
        self.ready.is_limited(Selected::of(task))
    }

    /// When the next task becomes due, or due tasks may start under a limit because time has passed.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.ready.next_due(now)
    }

    /// When [`Request::ExpireLeases`] is next useful: when the next lease has expired by the margin, or the next
    /// pending task expires.
    pub fn next_expiry(&self, lease_margin_ms: u64) -> Option<Timestamp> {
        // A lease is still valid at its exact end.
        let lease = self
            .leases
            .first()
            .map(|(at, _)| at.plus_millis(lease_margin_ms.saturating_add(1)));
        let expiry = self.expiries.first().map(|(at, _)| *at);
        lease.into_iter().chain(expiry).min()
    }

    /// Loads a stored task. Returns false, and changes nothing, if the id already exists.
    pub fn load(&mut self, mut task: Task) -> bool {
        if self.tasks.contains_key(&task.id) {
            return false;
        }
        if task.sequence == 0 {
            self.last_sequence = self.last_sequence.saturating_add(1);
            task.sequence = self.last_sequence;
        }
        self.last_sequence = (self.last_sequence)
            .max(task.sequence)
            .max(task.ordering_turn);
        // Stored tasks are loaded in any order, and a key belongs to the task that was submitted with it
        // last.
        let newer_holder = task.scoped_key().and_then(|key| {
            let holder = *self.keys.get(&key)?;
            (self.task(holder)?.sequence > task.sequence).then_some((key, holder))
        });
        self.insert(task);
        if let Some((key, holder)) = newer_holder {
            self.keys.insert(key, holder);
        }
        true
    }

    /// Counts the turn of a task that another process has claimed, for engines in which several processes do.
    pub fn count_turn(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get(&id) {
            self.ready.take_turn(Selected::of(task), task.priority);
        }
    }

    /// Restores the state that is stored next to the tasks: the pauses and the last sequence number.
    pub fn restore(&mut self, pauses: Pauses, last_sequence: u64) {
        self.pauses = pauses;
        self.last_sequence = self.last_sequence.max(last_sequence);
    }

    /// Removes a task of any status from memory, because the stored task has diverged from it.
    pub fn unload(&mut self, id: TaskId) -> Option<Arc<Task>> {
        self.reserved.remove(id);
        self.remove(id)
    }

    /// Reserves the id and the key of a stored task that this version cannot read. The engine must keep others from using them.
    pub fn reserve(&mut self, outline: Outline, reason: String) {
        self.reserved.insert(outline, reason);
    }

    /// Why a stored task cannot be read, if its id is reserved.
    pub fn unreadable(&self, id: TaskId) -> Option<&str> {
        self.reserved.reason(id)
    }

    /// The unreadable task that holds an idempotency key.
    pub fn unreadable_holder(&self, key: &ScopedKey) -> Option<TaskId> {
        self.reserved.holder(key)
    }

    /// The stored tasks that cannot be read, each with the reason.
    pub fn unreadable_tasks(&self) -> impl Iterator<Item = (TaskId, &str)> {
        self.reserved.tasks()
    }

    /// Removes a settled task from memory and returns it, for engines that keep finished tasks elsewhere.
    /// Returns `None` for any other task.
    pub fn forget(&mut self, id: TaskId) -> Option<Arc<Task>> {
        self.tasks.get(&id).filter(|task| task.is_settled())?;
        self.remove(id)
    }

    fn act(
        &mut self,
        id: TaskId,
        command: Command,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        match self.change(id, command, now) {
            Ok(()) => {
                changes.tasks.push(id);
                CommandOutcome::Applied { id }
            }
            Err(rejection) => CommandOutcome::Rejected(rejection),
        }
    }

    fn expire_leases(
        &mut self,
        limit: usize,
        ended_before: Timestamp,
        jitter: Jitter,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        // A lease is expired after its deadline, a task at its deadline. The tests of the task show this.
        let dead = self.leases.iter().take_while(|(at, _)| *at < ended_before);
        let stale = self.expiries.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<_> = dead.chain(stale).take(limit).map(|(_, id)| *id).collect();
        for (index, id) in due.iter().enumerate() {
            let action = match self.task(*id).map(|task| task.status) {
                Some(Status::Running) => Action::ExpireLease {
                    jitter: jitter.nth(index),
                },
                _ => Action::Expire,
            };
            if self.change(*id, Command { op, action }, now).is_ok() {
                changes.tasks.push(*id);
            }
        }
        CommandOutcome::Expired(changes.tasks.clone())
    }

    fn set_pause(
        &mut self,
        target: PauseTarget,
        note: Option<PauseNote>,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        let changed = self.pauses.set(&target, note, now);
        if changed {
            changes.pauses.push(target);
        }
        CommandOutcome::PauseSet { changed }
    }

    fn purge(&mut self, id: TaskId, changes: &mut Changes) -> CommandOutcome {
        let Some(task) = self.task(id) else {
            return CommandOutcome::Rejected(Rejection::NotFound { id });
        };
        if !task.status.is_terminal() {
            return CommandOutcome::Rejected(Rejection::WrongStatus {
                action: "purge",
                status: task.status,
            });
        }
        if task.stops_line() {
            return CommandOutcome::Rejected(Rejection::StopsLine { action: "purge" });
        }
        self.remove(id);
        changes.removed.push(id);
        CommandOutcome::Purged { id }
    }

    /// Changes one task and its index entries, or nothing.
    fn change(&mut self, id: TaskId, command: Command, now: Timestamp) -> Result<(), Rejection> {
        let task = self.tasks.get_mut(&id).ok_or(Rejection::NotFound { id })?;
        let task = Arc::make_mut(task);
        let before = IndexPosition::of(task);
        let (turn, queue) = (task.ordering_turn, task.queue.clone());
        task.apply(command, now)?;
        if task.ordering_turn != turn {
            // It joins its line again, behind everything that was submitted by now.
            self.last_sequence += 1;
            task.ordering_turn = self.last_sequence;
        }
        let after = IndexPosition::of(task);
        if task.queue != queue {
            (task.queue, task.task_type) = self.counters.shared_names(&task.queue, &task.task_type);
            let names = IndexNames::of(task);
            self.move_in_indexes(&names.in_queue(queue), id, Some(before), None);
            self.move_in_indexes(&names, id, None, Some(after));
        } else if before != after {
            let names = IndexNames::of(task);
            self.move_in_indexes(&names, id, Some(before), Some(after));
        }
        self.webhooks.record_end(id, before.status, after.status);
        Ok(())
    }
}
