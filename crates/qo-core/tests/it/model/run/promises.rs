//! The promises: what holds in every state, and that everything finishes in the end.

use std::collections::BTreeSet;

use qo_core::task::KeyHold;
use qo_core::{Action, Status, Task};

use super::{IDS, ModelRun, QUEUES, input_of};
use crate::support::{at, id, lease};

impl ModelRun {
    /// Compares every task with the model, and checks the promises that are visible in a single state.
    pub(super) fn compare(&mut self) -> Result<(), String> {
        self.model.forget_rounds();
        if self.state.len() != self.model.tasks.len() {
            return Err(format!(
                "{} tasks instead of {}",
                self.state.len(),
                self.model.tasks.len()
            ));
        }
        let mut leases = BTreeSet::new();
        for expected in &self.model.tasks {
            let Some(task) = self.state.task(id(expected.id)) else {
                return Err(format!("task {} is lost", expected.id));
            };
            let actual = (
                task.queue.as_str(),
                task.status,
                task.attempt,
                task.retry_count,
                task.cancel_requested,
                task.lease_id,
                task.lease_expires_at,
            );
            let running = expected.status == Status::Running;
            let wanted = (
                QUEUES[expected.queue],
                expected.status,
                expected.attempt,
                expected.retries,
                expected.cancel_requested,
                expected.lease.map(lease),
                running.then_some(at(expected.lease_until)),
            );
            if actual != wanted {
                return Err(format!(
                    "task {}: {actual:?} instead of {wanted:?}",
                    expected.id
                ));
            }
            if expected.status == Status::Pending && task.available_at != at(expected.available_at)
            {
                return Err(format!(
                    "task {} is due at {}",
                    expected.id, task.available_at
                ));
            }
            if task.input() != input_of(expected.input) {
                return Err(format!("task {} has another input", expected.id));
            }
            // Promise 3: no two attempts share a lease, and an attempt has one exactly while it runs.
            if running != task.lease_id.is_some()
                || task.lease_id.is_some_and(|lease| !leases.insert(lease))
            {
                return Err(format!("task {} has the wrong lease", expected.id));
            }
            // Promise 6.
            if task.attempt > 1 + expected.explained {
                return Err(format!(
                    "task {} has {} attempts without a reason",
                    expected.id, task.attempt
                ));
            }
        }
        // At most one task of a line is running, and nothing of the line before it is unfinished.
        for running in self
            .state
            .tasks()
            .filter(|task| task.status == Status::Running)
        {
            let Some(line) = running.ordering_line() else {
                continue;
            };
            let place = |task: &Task| task.sequence.max(task.ordering_turn);
            let before = self.state.tasks().find(|other| {
                other.ordering_line().as_ref() == Some(&line)
                    && other.id != running.id
                    && !other.is_settled()
                    && (other.status == Status::Running || place(other) < place(running))
            });
            if let Some(other) = before {
                return Err(format!("task {} runs before {}", running.id, other.id));
            }
        }
        // Promise 1.
        for number in self.submitted.difference(&self.purged) {
            if self.state.task(id(*number)).is_none() {
                return Err(format!("the submitted task {number} is lost"));
            }
        }
        Ok(())
    }

    /// Stops the faults and lets the workers work: everything must finish, and the indexes must still be
    /// consistent.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        self.state.check_consistency()?;
        // Promise 2: among the holders of one key, at most one is within its validity. A task that holds its key for a part of its life may be
        // replayed after another one has taken the key; to whom it belongs then shows in the outcomes of submits.
        for queue in QUEUES {
            for key in 0..3 {
                let name = format!("key-{key}");
                let holding = self.state.tasks().filter(|task| {
                    (task.idempotency_queue.as_ref().unwrap_or(&task.queue)).as_str() == queue
                        && task
                            .idempotency_key
                            .as_ref()
                            .is_some_and(|key| key.as_str() == name)
                        && task.idempotency_hold == KeyHold::Kept
                        && task.key_holds(at(self.now))
                });
                if holding.count() > 1 {
                    return Err(format!("two tasks hold {name} in {queue}"));
                }
            }
        }
        for queue in 0..2 {
            self.pause(queue);
        }
        // Promise 5: each round moves time past every lease and every delay.
        for _ in 0..64 {
            if (self.state.tasks()).all(|task| task.status.is_terminal()) {
                break;
            }
            self.now += 120_000;
            self.expire();
            self.now += 20_000;
            // An operator looks after the lines that stand still.
            let stopping: Vec<u64> = (self.model.tasks.iter())
                .filter(|task| task.stops_line())
                .map(|task| task.id)
                .collect();
            for number in stopping {
                if let Some(task) = self.model.task(number) {
                    task.end(Status::Cancelled);
                }
                self.act(number, Action::Cancel { reason: None }, true)?;
            }
            self.complete_all()?;
            self.compare()?;
        }
        match self.state.tasks().find(|task| !task.status.is_terminal()) {
            Some(task) => Err(format!("task {} never ends: {task:?}", task.id)),
            None => self.state.check_consistency(),
        }
    }

    /// Claims and completes until nothing is due.
    fn complete_all(&mut self) -> Result<(), String> {
        loop {
            let claimed = self.claim_of(None, None, IDS)?;
            if claimed.is_empty() {
                return Ok(());
            }
            for number in claimed {
                let held = self
                    .model
                    .task(number)
                    .and_then(|task| task.lease)
                    .unwrap_or_default();
                if let Some(task) = self.model.task(number) {
                    task.end(Status::Completed);
                }
                self.act(
                    number,
                    Action::Complete {
                        lease: lease(held),
                        output: None,
                    },
                    true,
                )?;
            }
        }
    }
}
