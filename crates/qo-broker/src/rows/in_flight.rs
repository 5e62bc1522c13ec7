//! The finished tasks whose rows are being written.
//!
//! A finished task leaves memory when its group is given to the writer, and can be read from the database when the group is written. A lookup
//! in between must wait for it. A lookup of any other task need not: most submits choose an id that nobody has used, and waiting for all groups
//! in flight would delay each of them by a whole commit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qo_core::TaskId;

use super::keys::{self, ENDED};
use super::port::RowWrite;

/// The tasks, each with the number of groups in flight that change its row.
#[derive(Debug, Clone, Default)]
pub(super) struct EndedInFlight(Arc<Mutex<BTreeMap<TaskId, usize>>>);

/// The tasks of one group, until it is dropped.
#[derive(Debug)]
pub(super) struct GroupInFlight {
    ended: EndedInFlight,
    ids: Vec<TaskId>,
}

impl EndedInFlight {
    /// Remembers the finished tasks of a group until the returned value is dropped: once the rows can be read.
    pub(super) fn add(&self, writes: &[RowWrite]) -> GroupInFlight {
        let ids: Vec<TaskId> = writes.iter().filter_map(ended_task).collect();
        let mut tasks = self.lock();
        for id in &ids {
            *tasks.entry(*id).or_default() += 1;
        }
        drop(tasks);
        GroupInFlight {
            ended: self.clone(),
            ids,
        }
    }

    /// Whether a row of one of these tasks is being written.
    pub(super) fn concerns(&self, ids: &[TaskId]) -> bool {
        let tasks = self.lock();
        !tasks.is_empty() && ids.iter().any(|id| tasks.contains_key(id))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The finished task that a write is about.
fn ended_task(write: &RowWrite) -> Option<TaskId> {
    let key = match write {
        RowWrite::Put(row) => &row.key,
        RowWrite::Delete(key) => key,
    };
    (key.first() == Some(&ENDED))
        .then(|| keys::task_of(key))
        .flatten()
}

impl Drop for GroupInFlight {
    fn drop(&mut self) {
        let mut tasks = self.ended.lock();
        for id in &self.ids {
            match tasks.get_mut(id) {
                Some(groups) if *groups > 1 => *groups -= 1,
                _ => drop(tasks.remove(id)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_in_flight_until_all_groups_with_its_row_are_written() {
        let [ended, live] = [1, 2].map(|byte| TaskId::from_bytes([byte; 16]));
        let in_flight = EndedInFlight::default();
        let put = RowWrite::put(keys::of_task(ENDED, ended), "");
        let first = in_flight.add(&[put, RowWrite::put(keys::of_task(b'l', live), "")]);
        let second = in_flight.add(&[RowWrite::Delete(keys::of_task(ENDED, ended))]);
        assert!(in_flight.concerns(&[live, ended]));
        assert!(!in_flight.concerns(&[live]));
        drop(first);
        assert!(in_flight.concerns(&[ended]));
        drop(second);
        assert!(!in_flight.concerns(&[ended]));
    }
}
