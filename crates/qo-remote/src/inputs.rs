//! The inputs of tasks that were handed out here, so that answers about their attempts need not repeat them.
//!
//! An input is kept until the end of its attempt is told. What is kept is bounded; of a task whose input is not known here, the
//! server is asked to tell it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qo_core::{Json, LeaseId, Payload, Task};

use qo_engine::Operation;

/// How many inputs are kept; the oldest are forgotten first.
const INPUTS_MAX: usize = 65_536;
/// How many bytes they may have in all.
const BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Inputs {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    inputs: BTreeMap<LeaseId, Json>,
    /// Oldest first, also those that were taken since.
    order: VecDeque<LeaseId>,
    bytes: usize,
}

impl Known {
    fn keep(&mut self, lease: LeaseId, input: Json) {
        self.bytes += input.size();
        if let Some(before) = self.inputs.insert(lease, input) {
            self.bytes -= before.size();
        } else {
            self.order.push_back(lease);
        }
        while self.bytes > BYTES_MAX || self.order.len() > INPUTS_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.take(oldest);
        }
    }

    fn take(&mut self, lease: LeaseId) -> Option<Json> {
        let input = self.inputs.remove(&lease)?;
        self.bytes -= input.size();
        Some(input)
    }
}

impl Inputs {
    pub(super) fn remember(&self, tasks: &[Task]) {
        let mut known = self.lock();
        for task in tasks {
            if let (Some(lease), Payload::Inline(input)) = (task.lease_id, task.input()) {
                known.keep(lease, input);
            }
        }
    }

    /// The input of the task that a worker's operation is about, if it is known. The end of an attempt removes it.
    pub(super) fn of(&self, operation: &Operation) -> Option<Json> {
        let lease = operation.lease()?;
        let mut known = self.lock();
        if operation.ends_attempt() {
            known.take(lease)
        } else {
            known.inputs.get(&lease).cloned()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task whose input was left out of an answer, with its input.
pub(super) fn with_input(task: Task, input: Option<Json>) -> Task {
    match input {
        Some(input) if !task.names_input() => task.with_input(input),
        _ => task,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_bounded_and_the_oldest_go_first() {
        const MIB: usize = 1024 * 1024;
        let mut known = Known::default();
        let input = Json::parse(format!("\"{}\"", "x".repeat(MIB - 2))).unwrap();
        let lease = |number: u128| LeaseId::from_random(number << 64);
        for number in 0..70 {
            known.keep(lease(number), input.clone());
        }
        assert_eq!(known.bytes, BYTES_MAX);
        assert_eq!(known.take(lease(0)), None);
        assert_eq!(known.take(lease(69)), Some(input.clone()));
        assert_eq!(known.take(lease(69)), None, "it was given away");
        assert_eq!(known.bytes, BYTES_MAX - MIB);
        known.keep(lease(68), input);
        assert_eq!(known.bytes, BYTES_MAX - MIB, "it is kept once");
    }
}
