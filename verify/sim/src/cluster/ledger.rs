//! What clients were told, and whether it fits together.

use std::collections::BTreeMap;
use std::time::Duration;

use qo_core::{LeaseId, Status, Task, TaskId};

/// What clients were told.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Acknowledged tasks and their inputs.
    pub(super) submitted: BTreeMap<TaskId, String>,
    /// The holder of each attempt.
    claimed: BTreeMap<(TaskId, u32), LeaseId>,
    /// When a completion was acknowledged, and its attempt.
    completed: BTreeMap<TaskId, (Duration, u32)>,
    /// The task of each key.
    keys: BTreeMap<String, TaskId>,
    pub(super) found: Vec<String>,
    pub(super) calls: u64,
}

impl Ledger {
    fn breach(&mut self, what: String) {
        if self.found.len() < 20 {
            self.found.push(what);
        }
    }

    pub(super) fn submitted(&mut self, key: Option<&str>, input: &str, task: &Task) {
        if let Some(key) = key {
            let holder = *self.keys.entry(key.to_owned()).or_insert(task.id);
            if holder != task.id {
                self.breach(format!("key {key} names {holder}, and then {}", task.id));
            }
        }
        // A repeated key returns the first task, with its own input.
        if key.is_none() {
            self.submitted.insert(task.id, input.to_owned());
        } else {
            let stored = task.inline_input().map(|json| json.as_str().to_owned());
            self.submitted
                .entry(task.id)
                .or_insert(stored.unwrap_or_default());
        }
    }

    /// A claim that began at `began` returned this task.
    pub(super) fn claimed(&mut self, began: Duration, task: &Task) {
        let Some(lease) = task.lease_id else {
            return self.breach(format!("{} was claimed without a lease", task.id));
        };
        let holder = *self.claimed.entry((task.id, task.attempt)).or_insert(lease);
        if holder != lease {
            self.breach(format!(
                "attempt {} of {} was given to two workers",
                task.attempt, task.id
            ));
        }
        if let Some((at, _)) = self.completed.get(&task.id)
            && *at < began
        {
            self.breach(format!("{} was claimed after its completion", task.id));
        }
    }

    pub(super) fn completed(&mut self, at: Duration, task: &Task) {
        let known = self.completed.get(&task.id).copied();
        if let Some((_, attempt)) = known
            && attempt != task.attempt
        {
            self.breach(format!("{} was completed by two attempts", task.id));
        }
        self.completed.entry(task.id).or_insert((at, task.attempt));
    }

    /// A read that began at `began` returned this task, or that there is none.
    pub(super) fn read(&mut self, began: Duration, id: TaskId, task: Option<&Task>) {
        let Some(task) = task else {
            if self.submitted.contains_key(&id) {
                self.breach(format!("{id} was acknowledged and is lost"));
            }
            return;
        };
        if let Some(input) = self.submitted.get(&id)
            && task.inline_input().map(qo_core::Json::as_str) != Some(input.as_str())
        {
            let what = format!("{id} has another input than was submitted");
            self.breach(what);
        }
        if let Some((at, attempt)) = self.completed.get(&id).copied()
            && at < began
            && (task.status != Status::Completed || task.attempt != attempt)
        {
            self.breach(format!(
                "{id} was completed by attempt {attempt}, and a later read shows {} at attempt {}",
                task.status, task.attempt
            ));
        }
        let newest = self
            .claimed
            .range((id, 0)..=(id, u32::MAX))
            .next_back()
            .map(|((_, attempt), _)| *attempt);
        if let Some(newest) = newest
            && self.calls == 0
            && task.attempt < newest
        {
            self.breach(format!("{id} has fewer attempts than were given out"));
        }
    }
}
