//! Caches the inputs of claimed tasks, so that responses about their attempts need not repeat them.
//!
//! An input is kept until the attempt's result is sent. The cache is bounded; if it lacks a task's input, the server includes the
//! input in its response.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qo_core::{Json, LeaseId, Payload, Task};

use qo_engine::Operation;

/// The most inputs in the cache. The oldest are dropped first.
const INPUTS_MAX: usize = 65_536;
/// The most bytes in the cache.
const BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Inputs {
    cache: Mutex<InputCache>,
}

#[derive(Debug, Default)]
struct InputCache {
    inputs: BTreeMap<LeaseId, Json>,
    /// Oldest first. It may contain leases whose inputs were taken.
    order: VecDeque<LeaseId>,
    bytes: usize,
}

impl InputCache {
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
        let mut cache = self.lock();
        for task in tasks {
            if let (Some(lease), Payload::Inline(input)) = (task.lease_id, task.input()) {
                cache.keep(lease, input);
            }
        }
    }

    /// The cached input of the task that a worker's operation is about. An operation that ends the attempt removes it.
    pub(super) fn of(&self, operation: &Operation) -> Option<Json> {
        let lease = operation.lease()?;
        let mut cache = self.lock();
        if operation.ends_attempt() {
            cache.take(lease)
        } else {
            cache.inputs.get(&lease).cloned()
        }
    }

    fn lock(&self) -> MutexGuard<'_, InputCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the input to a task whose response omitted it.
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
    fn the_cache_is_bounded_and_drops_the_oldest_input_first() {
        const MIB: usize = 1024 * 1024;
        let mut cache = InputCache::default();
        let input = Json::parse(format!("\"{}\"", "x".repeat(MIB - 2))).unwrap();
        let lease = |number: u128| LeaseId::from_random(number << 64);
        for number in 0..70 {
            cache.keep(lease(number), input.clone());
        }
        assert_eq!(cache.bytes, BYTES_MAX);
        assert_eq!(cache.take(lease(0)), None);
        assert_eq!(cache.take(lease(69)), Some(input.clone()));
        assert_eq!(cache.take(lease(69)), None, "it was taken");
        assert_eq!(cache.bytes, BYTES_MAX - MIB);
        cache.keep(lease(68), input);
        assert_eq!(cache.bytes, BYTES_MAX - MIB, "it is kept once");
    }
}
