//! Applies one message to the state: its changes, and the response to send once they are durable.

use std::sync::Arc;
use std::time::Duration;

use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::queue_state::{Changes, Claim, CommandOutcome, Request, StateCommand};
use qo_core::{Action, Jitter, QueueState, Rejection, Status, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{Stats, TaskOrder, WaitReason};
use qo_store::runtime::{Runtime, RuntimeExt};

use super::journal::{GroupChanges, Journal};
use super::message::{Accepted, ClaimOrder, ListOrder, Listed, Message, Submit};
use super::notify::operation_of;

/// The most expired leases and tasks that one commit ends.
const EXPIRED_PER_COMMIT: usize = 1_000;
/// The most tasks that a list reads before it returns, so that it does not block the loop.
const SCANNED_MAX: usize = 10_000;
/// Applies messages to the state.
pub(super) struct Applier {
    pub(super) state: QueueState,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) lease_margin_ms: u64,
    /// How far the loop was behind in the last seconds.
    pub(super) lag: Duration,
}

impl Applier {
    pub(super) fn apply<J: Journal>(
        &mut self,
        journal: &J,
        message: &mut Message,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) {
        match message {
            Message::Submit(call) => {
                let one = |submit| self.submit(journal, submit, now, changes);
                let results = call.request.iter().map(one).collect();
                call.respond(Ok(results));
            }
            // Claims are served in the order of their arrival, after everything else.
            Message::Claim(_) => {}
            Message::Act(call) => {
                let (id, action) = &call.request;
                let task = self.act(*id, action, now, changes);
                call.respond(task);
            }
            Message::ActMany(call) => {
                let one = |(id, action): &(TaskId, Action)| self.act(*id, action, now, changes);
                let results = call.request.iter().map(one).collect();
                call.respond(Ok(results));
            }
            Message::SetPause(call) => {
                let (target, note) = call.request.clone();
                changes.may_be_claimable |= note.is_none();
                let request = match note {
                    Some(note) => Request::Pause(target, note),
                    None => Request::Resume(target),
                };
                self.command(request, now, changes);
                call.respond(Ok(()));
            }
            Message::Purge(call) => {
                let task = self.purge(call.request, now, changes);
                call.respond(task);
            }
            Message::Get(call) => {
                let task = self.task(call.request);
                call.respond(task);
            }
            Message::WaitsFor(call) => {
                let waits = self.waits_for(call.request, now);
                call.respond(Ok(waits));
            }
            Message::LimitUsage(call) => {
                let usage = self.state.limit_usage(now);
                call.respond(Ok(usage));
            }
            Message::List(call) => {
                let listed = self.list(&call.request);
                call.respond(Ok(listed));
            }
            Message::Stats(call) => {
                let mut stats = self.stats(now);
                journal.add_stats(&mut stats, &self.state, now);
                call.respond(Ok(Box::new(stats)));
            }
            Message::Documents(call) => {
                let documents = self.documents(&call.request);
                call.respond(Ok(documents));
            }
            Message::WriteDocument(call) => {
                let document = self.write_document(journal, &call.request, now, changes);
                call.respond(document);
            }
            Message::Maintain(call) | Message::Close(call) => call.respond(Ok(())),
        }
    }

    /// Ends expired leases and tasks. Renewals of the same group are applied first, so a renewal that is just in time counts.
    pub(super) fn expire(
        &mut self,
        now: Timestamp,
        earliest: Timestamp,
        changes: &mut GroupChanges,
    ) {
        let lease_margin_ms = self.margin_ms(now, earliest);
        let due = self.state.next_expiry(lease_margin_ms);
        if due.is_none_or(|due| due > now) {
            return;
        }
        let request = Request::ExpireLeases {
            limit: EXPIRED_PER_COMMIT,
            lease_margin_ms,
            jitter: self.jitter(),
        };
        if let CommandOutcome::Expired(ids) = self.command(request, now, changes) {
            changes.may_be_claimable |= ids.into_iter().any(|id| self.frees_task(id));
        }
    }

    /// Claims due tasks, if there are any.
    pub(super) fn claim(
        &mut self,
        order: &ClaimOrder,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) -> Result<Vec<Arc<Task>>, EngineError> {
        let max = order.request.max.min(CLAIM_MAX_TASKS);
        if order.only_looks {
            return Ok(self.due(order, now, max));
        }
        let due = self
            .state
            .count_due(&order.request.queues, &order.request.types, now, max);
        if due == 0 {
            return Ok(Vec::new());
        }
        let claim = Claim {
            worker: order.request.worker.clone(),
            queues: order.request.queues.clone(),
            types: order.request.types.clone(),
            leases: (0..due).map(|_| self.runtime.new_lease_id()).collect(),
            lease_ms: order.lease_ms,
        };
        match self.command(Request::Claim(claim), now, changes) {
            CommandOutcome::Claimed(claimed) => Ok(claimed
                .iter()
                .filter_map(|one| self.state.shared(one.id))
                .collect()),
            CommandOutcome::Rejected(rejection) => Err(rejection.into()),
            _ => Ok(Vec::new()),
        }
    }

    /// The due tasks that a claim would take, each with the due time that says how urgent it is.
    fn due(&self, order: &ClaimOrder, now: Timestamp, max: usize) -> Vec<Arc<Task>> {
        let (queues, types) = (&order.request.queues, &order.request.types);
        let due = self.state.due_by_urgency(queues, types, now, max);
        let due = due.into_iter().filter_map(|(id, since)| {
            let mut task = self.state.shared(id)?;
            if task.available_at != since {
                // Groups take turns: whoever compares it with the tasks of other partitions needs the age of the oldest of all groups.
                Arc::make_mut(&mut task).available_at = since;
            }
            Some(task)
        });
        due.collect()
    }

    /// The response to a claim that found nothing until its wait was over.
    pub(super) fn empty_claim_response(
        &self,
        order: &ClaimOrder,
    ) -> Result<Vec<Arc<Task>>, EngineError> {
        let (queues, types) = (&order.request.queues, &order.request.types);
        match self.state.pauses().stop_all(queues, types) {
            Some(stopped) => Err(stopped.into()),
            None => Ok(Vec::new()),
        }
    }

    /// How long until something expires.
    pub(super) fn expires_in(&self, now: Timestamp, earliest: Timestamp) -> Option<Duration> {
        let due = self.state.next_expiry(self.margin_ms(now, earliest))?;
        Some(due.since(now))
    }

    /// How long before `now` a lease must have expired: the configured margin, counted from the earliest possible time. If the loop is
    /// behind by more than the margin, a renewal that was sent in time may still wait, and the delay is added.
    fn margin_ms(&self, now: Timestamp, earliest: Timestamp) -> u64 {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let uncertainty_ms = millis(now.since(earliest));
        let lag_ms = Some(millis(self.lag)).filter(|lag_ms| *lag_ms > self.lease_margin_ms);
        self.lease_margin_ms
            .saturating_add(uncertainty_ms)
            .saturating_add(lag_ms.unwrap_or(0))
    }

    fn act(
        &mut self,
        id: TaskId,
        action: &Action,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) -> Result<Arc<Task>, EngineError> {
        self.check_readable(id)?;
        let action = action.clone();
        match self.command(Request::Task { id, action }, now, changes) {
            CommandOutcome::Applied { id } => {
                let task = self.task(id)?;
                changes.may_be_claimable |= self.frees_task(id);
                Ok(task)
            }
            outcome => Err(rejection_error(outcome, id)),
        }
    }

    pub(super) fn submit<J: Journal>(
        &mut self,
        journal: &J,
        submit: &Submit,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) -> Result<Accepted, EngineError> {
        self.check_readable(submit.id)?;
        if let Some(error) = &submit.unreadable {
            return Err(error.clone());
        }
        let key = submit.request.scoped_key();
        if let Some(holder) = key.and_then(|key| self.state.unreadable_holder(&key)) {
            self.check_readable(holder)?;
        }
        let bytes = submit.bytes();
        if self.state.task(submit.id).is_none() {
            journal.admit(changes.input_bytes, bytes)?;
        }
        let request = Request::Submit(Box::new(submit.submission(now)));
        match self.command(request, now, changes) {
            CommandOutcome::Submitted { id, duplicate } => {
                // A task that was changed may be due at another time.
                changes.may_be_claimable |= duplicate;
                if !duplicate {
                    changes.submitted.push(id);
                    changes.input_bytes += bytes;
                    changes.may_be_claimable = true;
                }
                let task = self.task(id)?;
                Ok(Accepted { task, duplicate })
            }
            outcome => Err(rejection_error(outcome, submit.id)),
        }
    }

    fn purge(
        &mut self,
        id: TaskId,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) -> Result<Arc<Task>, EngineError> {
        self.check_readable(id)?;
        let task = self.task(id);
        match self.command(Request::Purge(id), now, changes) {
            CommandOutcome::Purged { .. } => {
                let task = task?;
                changes.record_removed(&task);
                changes.record_removal(id);
                changes.removed.push(Task::clone(&task));
                Ok(task)
            }
            outcome => Err(rejection_error(outcome, id)),
        }
    }

    fn list(&self, order: &ListOrder) -> Listed {
        let mut listed = Listed {
            tasks: Vec::new(),
            last: None,
            examined: 0,
        };
        let by = order.filter.order;
        let after = order.after;
        let tasks: Box<dyn Iterator<Item = &Task>> = match by {
            TaskOrder::Newest => {
                let place = after.map(|place| (place.at, place.id));
                Box::new(self.state.tasks_before(place))
            }
            _ => Box::new(self.state.tasks_after(after.map(|place| place.id))),
        };
        for task in tasks {
            if listed.tasks.len() >= order.limit || listed.examined >= SCANNED_MAX {
                return listed;
            }
            listed.examined += 1;
            listed.last = Some(by.position_of(task));
            if order.filter.matches(task) {
                listed.tasks.push(task.clone());
            }
        }
        listed.last = None;
        listed
    }

    fn stats(&self, now: Timestamp) -> Stats {
        let mut stats = Stats::default();
        let counters = self.state.counters();
        for (name, _) in counters.queues() {
            let queue = stats.queues.entry(name.clone()).or_default();
            for (task_type, counts) in counters.types(name) {
                for status in Status::ALL {
                    if counts.of(status) > 0 {
                        queue.add(task_type, status, counts.of(status));
                    }
                }
            }
            queue.oldest_due = self.state.oldest_due(name, now);
        }
        // Bounded, so that it does not block the loop.
        for task in self.state.running().take(SCANNED_MAX) {
            if let (Some(at), Some(queue)) = (task.started_at, stats.queues.get_mut(&task.queue)) {
                queue.add_claim(at);
            }
        }
        stats.set_pauses(self.state.pauses().clone());
        stats
    }

    pub(super) fn command(
        &mut self,
        request: Request,
        now: Timestamp,
        changes: &mut GroupChanges,
    ) -> CommandOutcome {
        let op = self.runtime.new_op_id();
        let mut operation = operation_of(&request);
        let (outcome, mut changed) = self.state.apply(StateCommand { op, request }, now);
        if matches!(
            outcome,
            CommandOutcome::Submitted {
                duplicate: true,
                ..
            }
        ) {
            operation = "amend";
        }
        let deliveries = Changes {
            tasks: std::mem::take(&mut changed.deliveries),
            ..Changes::default()
        };
        self.record(operation, changed, changes);
        if !deliveries.is_empty() {
            changes.submitted.extend(&deliveries.tasks);
            changes.may_be_claimable = true;
            self.record("submit", deliveries, changes);
        }
        outcome
    }

    fn record(&self, operation: &'static str, changed: Changes, changes: &mut GroupChanges) {
        changes.record_changed(operation, &changed.tasks, &self.state);
        changes.record_command(operation, &changed, &self.state);
        changes.add(changed);
    }

    /// Refuses to touch a task whose stored record this version cannot read.
    pub(super) fn check_readable(&self, id: TaskId) -> Result<(), EngineError> {
        match self.state.unreadable(id) {
            None => Ok(()),
            Some(reason) => Err(EngineError::Unreadable {
                id,
                detail: reason.to_owned(),
            }),
        }
    }

    fn task(&self, id: TaskId) -> Result<Arc<Task>, EngineError> {
        self.check_readable(id)?;
        let task = self.state.shared(id);
        task.ok_or_else(|| Rejection::NotFound { id }.into())
    }

    /// Whether the change of a task may have made one claimable: itself, the next one with its ordering key, or one that waits for a slot of
    /// its limit.
    fn frees_task(&self, id: TaskId) -> bool {
        let task = self.state.task(id);
        task.is_some_and(|task| {
            task.status == Status::Pending
                || task.ordering_key.is_some()
                || self.state.is_limited(task)
        })
    }

    /// Why a pending task waits.
    fn waits_for(&self, id: TaskId, now: Timestamp) -> Option<WaitReason> {
        let task = self.state.task(id);
        let pending = task.filter(|task| task.status == Status::Pending)?;
        let paused = WaitReason::of_pause(pending, self.state.pauses());
        let behind = || self.state.waits_behind(id).map(WaitReason::from);
        paused
            .or_else(behind)
            .or_else(|| self.state.waits_for_limit(id, now).map(WaitReason::Limit))
    }

    fn jitter(&self) -> Jitter {
        jitter(self.runtime.as_ref())
    }
}

/// Random bits that spread delays.
pub(super) fn jitter(runtime: &dyn Runtime) -> Jitter {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "32 of the 64 random bits are wanted"
    )]
    Jitter::new(runtime.random() as u32)
}

/// The error of a command that changed nothing.
fn rejection_error(outcome: CommandOutcome, id: TaskId) -> EngineError {
    match outcome {
        CommandOutcome::Rejected(rejection) => rejection.into(),
        // These commands have no other outcome.
        _ => Rejection::NotFound { id }.into(),
    }
}
