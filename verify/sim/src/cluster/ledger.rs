//! What clients were told, and whether it fits together.

use std::collections::BTreeMap;
use std::time::Duration;

use qo_check::{Breaches, Promise};
use qo_core::{LeaseId, Status, Task, TaskId};

/// The most breaches that a run reports.
const FOUND_MAX: usize = 20;

/// What clients were told.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Acknowledged tasks and their inputs, if those cannot be replaced.
    pub(super) submitted: BTreeMap<TaskId, Option<String>>,
    /// The holder of each attempt, and when it was told.
    claimed: BTreeMap<(TaskId, u32), (LeaseId, Duration)>,
    /// When a completion was acknowledged, and its attempt.
    completed: BTreeMap<TaskId, (Duration, u32)>,
    /// The task of each key.
    keys: BTreeMap<String, TaskId>,
    pub(super) found: Breaches,
}

impl Ledger {
    pub(super) fn breach(&mut self, promise: Promise, what: String) {
        if self.found.0.len() < FOUND_MAX {
            self.found.add(promise, what);
        }
    }

    /// A submit was acknowledged. With a key, the task may be that of an earlier submit, with its own input.
    pub(super) fn submitted(&mut self, key: Option<&str>, input: &str, task: &Task) {
        if let Some(key) = key {
            let holder = *self.keys.entry(key.to_owned()).or_insert(task.id);
            if holder != task.id {
                let what = format!("key {key} names {holder}, and then {}", task.id);
                self.breach(Promise::OneTask, what);
            }
        }
        let stored = match key {
            None => Some(input.to_owned()),
            Some(_) => task.inline_input().map(|json| json.as_str().to_owned()),
        };
        self.submitted.entry(task.id).or_insert(stored);
    }

    /// A submit was acknowledged whose task others may change.
    pub(super) fn submitted_for_change(&mut self, task: &Task) {
        self.submitted.entry(task.id).or_insert(None);
    }

    /// A claim that began at `began` returned this task, at `at`.
    pub(super) fn claimed(&mut self, began: Duration, at: Duration, task: &Task) {
        let Some(lease) = task.lease_id else {
            let what = format!("{} was claimed without a lease", task.id);
            return self.breach(Promise::OneAttempt, what);
        };
        let attempt = (task.id, task.attempt);
        let (holder, _) = *self.claimed.entry(attempt).or_insert((lease, at));
        if holder != lease {
            let what = format!(
                "attempt {} of {} was given to two workers",
                task.attempt, task.id
            );
            self.breach(Promise::OneAttempt, what);
        }
        if let Some((at, _)) = self.completed.get(&task.id)
            && *at < began
        {
            let what = format!("{} was claimed after its completion", task.id);
            self.breach(Promise::OneAttempt, what);
        }
    }

    pub(super) fn completed(&mut self, at: Duration, task: &Task) {
        let known = self.completed.get(&task.id).copied();
        if let Some((_, attempt)) = known
            && attempt != task.attempt
        {
            let what = format!("{} was completed by two attempts", task.id);
            self.breach(Promise::OneAttempt, what);
        }
        self.completed.entry(task.id).or_insert((at, task.attempt));
    }

    /// A read that began at `began` returned this task, or that there is none.
    pub(super) fn read(&mut self, began: Duration, id: TaskId, task: Option<&Task>) {
        let Some(task) = task else {
            if self.submitted.contains_key(&id) {
                let what = format!("{id} was acknowledged and is lost");
                self.breach(Promise::NothingLost, what);
            }
            return;
        };
        if let Some(Some(input)) = self.submitted.get(&id)
            && task.inline_input().map(qo_core::Json::as_str) != Some(input.as_str())
        {
            let what = format!("{id} has another input than was submitted");
            self.breach(Promise::NothingLost, what);
        }
        if let Some((at, attempt)) = self.completed.get(&id).copied()
            && at < began
            && (task.status != Status::Completed || task.attempt != attempt)
        {
            let what = format!(
                "{id} was completed by attempt {attempt}, and a later read shows {} at attempt {}",
                task.status, task.attempt
            );
            self.breach(Promise::OneAttempt, what);
        }
        let attempts = self.claimed.range((id, 0)..=(id, u32::MAX));
        let newest = attempts
            .filter(|(_, (_, at))| *at < began)
            .map(|((_, attempt), _)| *attempt)
            .next_back();
        if let Some(newest) = newest.filter(|newest| task.attempt < *newest) {
            let what = format!(
                "attempt {newest} of {id} was given out, and a later read shows attempt {}",
                task.attempt
            );
            self.breach(Promise::OneAttempt, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use qo_core::transition::submit;
    use qo_core::{Json, OpId, Payload, Submission, Timestamp};

    use super::*;

    fn task(attempt: u32) -> Task {
        let id = TaskId::from_random(1);
        let input = Payload::Inline(Json::null());
        let submission = Submission::new(id, "work".parse().unwrap(), input);
        let mut task = submit(submission, OpId::from_random(1), Timestamp::MIN).unwrap();
        task.attempt = attempt;
        task.lease_id = Some(LeaseId::from_random(attempt.into()));
        task
    }

    #[test]
    fn a_read_must_show_every_attempt_that_was_given_out_before() {
        let second = Duration::from_secs;
        let mut ledger = Ledger::default();
        ledger.claimed(second(1), second(2), &task(1));
        ledger.claimed(second(3), second(4), &task(2));
        // A read that began before the second claim was acknowledged may miss it.
        ledger.read(second(4), task(1).id, Some(&task(1)));
        ledger.read(second(5), task(2).id, Some(&task(2)));
        assert!(ledger.found.is_empty(), "{}", ledger.found);
        ledger.read(second(5), task(1).id, Some(&task(1)));
        assert!(ledger.found.promises().contains(&Promise::OneAttempt));
    }
}
