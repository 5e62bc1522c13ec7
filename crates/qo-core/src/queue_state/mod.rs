//! All live tasks of one queue space in memory, as a deterministic state machine.
//!
//! The broker and the cluster apply the same commands in the same order and reach the same state, because the result
//! depends only on the arguments: time, ids and jitter are part of the command, and every index is ordered.
//!
//! The cost of a command is logarithmic in the number of tasks and linear in the number of tasks that it moves. A
//! claim also costs the number of queues and types that it requests, and of the limits that tasks wait for.
//!
//! | index | order | serves |
//! | --- | --- | --- |
//! | `tasks` | id | everything |
//! | `ready` | the limits that apply; queue, type, then priority, available_at, submit order | claims |
//! | `lines` | ordering key in its queue, then place | claims: only the head of a line is ready |
//! | `leases` | lease_expires_at | [`Request::ExpireLeases`] |
//! | `expiries` | expires_at of pending tasks | [`Request::ExpireLeases`] |
//! | `created` | created_at, id | lists, newest first |
//! | `ended` | completed_at of settled tasks | engines that keep finished tasks for a while |
//! | `keys` | idempotency key in its scope | submits |

mod command;
mod counters;
mod documents;
mod indexes;
mod limited;
mod lines;
mod position;
mod ready;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use command::{Changes, Claim, Claimed, CommandOutcome, Request, StateCommand, WaitsBehind};
pub use counters::{Counters, StatusCounts};

use self::indexes::IndexNames;
use self::limited::{Asked, LimitedReady, Selected};
use self::lines::Lines;
use self::position::IndexPosition;
use self::reserved::Reserved;
use crate::document::{DocumentId, StoredDocument};
use crate::id::{OpId, TaskId};
use crate::limit::LimitWait;
use crate::limits::CLAIM_MAX_TASKS;
use crate::names::{QueueName, TaskType};
use crate::pause::{PauseNote, PauseTarget, Pauses};
use crate::queue_settings::QueueSettings;
use crate::retry::Jitter;
use crate::task::{Outline, ScopedKey, Status, Task};
use crate::time::Timestamp;
use crate::transition::{Action, Command, Rejection, Submission, submit};

/// The number of expired tasks that a claim cancels before it leaves the rest to [`Request::ExpireLeases`].
const EXPIRED_PER_CLAIM: usize = 1_000;

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
        let asked = Asked {
            queues,
            types,
            pauses: &self.pauses,
        };
        self.ready.due(asked, now, limit)
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

    /// Restores the state that is stored beside the tasks: the pauses and the last sequence number.
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

    fn submit(
        &mut self,
        mut submission: Submission,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        if let Some(first) = self.same_submit(&submission, now) {
            return self.submit_again(first, &submission, op, now, changes);
        }
        let id = submission.id;
        if let Some(settings) = self.settings.get(&submission.queue) {
            settings.complete(&mut submission);
        }
        match self.new_task(submission, op, now) {
            Err(rejection) => CommandOutcome::Rejected(rejection),
            Ok(mut task) => {
                self.last_sequence += 1;
                task.sequence = self.last_sequence;
                self.insert(task);
                changes.tasks.push(id);
                CommandOutcome::Submitted {
                    id,
                    duplicate: false,
                }
            }
        }
    }

    /// A submit that finds a task with its id, or that holds its key: changes the task, if it asks for that.
    fn submit_again(
        &mut self,
        first: TaskId,
        submission: &Submission,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        let holder = self.task(first);
        let amendment = match holder.map(|holder| submission.amendment(holder, now)) {
            Some(Err(rejection)) => return CommandOutcome::Rejected(rejection),
            Some(Ok(amendment)) => amendment,
            None => None,
        };
        if let Some(action) = amendment {
            let has_input = matches!(&action, Action::Amend { input: Some(_), .. });
            if let Err(rejection) = self.change(first, Command { op, action }, now) {
                return CommandOutcome::Rejected(rejection);
            }
            changes.tasks.push(first);
            changes.inputs.extend(has_input.then_some(first));
        }
        CommandOutcome::Submitted {
            id: first,
            duplicate: true,
        }
    }

    /// The task of a submission, if it is valid and the queue has room for it.
    fn new_task(
        &self,
        submission: Submission,
        op: OpId,
        now: Timestamp,
    ) -> Result<Task, Rejection> {
        let is_exempt = submission.is_exempt;
        let task = submit(submission, op, now)?;
        if let Some(settings) = self.settings.get(&task.queue).filter(|_| !is_exempt) {
            let waiting = self.counters.queue(&task.queue).of(Status::Pending);
            settings.admit(&task.queue, waiting)?;
        }
        Ok(task)
    }

    /// The existing task that a submission would duplicate: the one with its id, or the holder of its key.
    fn same_submit(&self, submission: &Submission, now: Timestamp) -> Option<TaskId> {
        if self.tasks.contains_key(&submission.id) {
            return Some(submission.id);
        }
        let holder = *self.keys.get(&submission.scoped_key()?)?;
        self.task(holder)?.key_holds(now).then_some(holder)
    }

    fn claim(
        &mut self,
        claim: Claim,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        let mut leases = claim.leases.into_iter().take(CLAIM_MAX_TASKS).peekable();
        let mut claimed = Vec::new();
        let mut expired = 0;
        let mut counting = BTreeSet::new();
        while leases.peek().is_some() && expired < EXPIRED_PER_CLAIM {
            let wanted = leases.size_hint().0;
            let due = self.due(&claim.queues, &claim.types, now, wanted);
            if due.is_empty() {
                break;
            }
            for id in due {
                let Some(&lease) = leases.peek() else { break };
                // The tasks before it may have taken the last slot. The first one always has room.
                if (self.task(id)).is_some_and(|task| !self.ready.has_room(Selected::of(task), now))
                {
                    continue;
                }
                let action = if self.task(id).is_some_and(|task| task.is_expired(now)) {
                    expired += 1;
                    Action::Expire
                } else {
                    Action::Claim {
                        worker: claim.worker.clone(),
                        lease,
                        lease_ms: claim.lease_ms,
                    }
                };
                let is_claim = matches!(action, Action::Claim { .. });
                match self.change(id, Command { op, action }, now) {
                    Ok(()) => changes.tasks.push(id),
                    // A due task can be claimed, so only an invalid claim is rejected, and then
                    // as a whole.
                    Err(rejection) => return CommandOutcome::Rejected(rejection),
                }
                if is_claim {
                    leases.next();
                    claimed.push(Claimed { id, lease });
                    if let Some(task) = self.tasks.get(&id) {
                        counting.extend(self.ready.record_start(Selected::of(task), now));
                    }
                } else if self
                    .task(id)
                    .is_some_and(|task| task.ordering_key.is_some() || self.is_limited(task))
                {
                    // The next task of its key or its limits may be more urgent than the rest.
                    break;
                }
            }
        }
        for name in counting {
            self.store_starts(name, changes);
        }
        CommandOutcome::Claimed(claimed)
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
        Ok(())
    }
}
