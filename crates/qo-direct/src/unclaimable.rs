//! Ready tasks that this process cannot claim: their records cannot be read, or the store refuses every change of them.
//!
//! Their entries stay in the ready index, because another process may be able to claim them: a newer version of qo, for example. Without
//! this list, a page full of such entries would be listed and read again and again, and the entries behind it would never be reached.
//! After a while each task is tried again.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use qo_core::TaskId;
use qo_store::client::Tag;

use super::lock;

/// How long a task is skipped.
const SKIP_TIME: Duration = Duration::from_mins(10);
/// The maximum number of skipped tasks. At the limit, the expired ones are dropped; if there are none, all are.
const TASKS_MAX: usize = 100_000;
/// A task whose swap was refused this often, although every read returned the same tag, can never be changed. A correct store refuses
/// a swap only if the tag has changed.
pub(super) const REFUSALS_MAX: u32 = 4;
/// The maximum number of tasks whose refusals are counted.
const REFUSED_MAX: usize = 10_000;

/// The skipped tasks, and the refused swaps that make a task skipped.
#[derive(Default)]
pub(super) struct UnclaimableTasks {
    until: Mutex<BTreeMap<TaskId, Duration>>,
    refused: Mutex<BTreeMap<TaskId, (Tag, u32)>>,
}

impl UnclaimableTasks {
    /// Skips a task from `now` on.
    pub(super) fn add(&self, id: TaskId, now: Duration) {
        let mut until = lock(&self.until);
        if until.len() >= TASKS_MAX {
            until.retain(|_, until| *until > now);
            if until.len() >= TASKS_MAX {
                until.clear();
            }
        }
        until.insert(id, now + SKIP_TIME);
    }

    /// Whether a task is skipped.
    pub(super) fn contains(&self, id: TaskId, now: Duration) -> bool {
        lock(&self.until).get(&id).is_some_and(|until| *until > now)
    }

    /// Counts a refused swap of a task that was read just before with this tag. Returns true if the task can never be changed.
    pub(super) fn is_unswappable(&self, id: TaskId, tag: &Tag) -> bool {
        let mut refused = lock(&self.refused);
        if refused.len() >= REFUSED_MAX && !refused.contains_key(&id) {
            refused.clear();
        }
        let (known, count) = refused.entry(id).or_insert_with(|| (tag.clone(), 0));
        if !known.matches(tag) {
            (*known, *count) = (tag.clone(), 0);
        }
        *count += 1;
        *count >= REFUSALS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Tag {
        Tag::new(Some(text.to_owned()), None).unwrap()
    }

    #[test]
    fn only_refusals_of_one_tag_count() {
        let tasks = UnclaimableTasks::default();
        let id = TaskId::from_random(1);
        for round in 0..20 {
            assert!(!tasks.is_unswappable(id, &tag(&round.to_string())));
        }
        for _ in 1..REFUSALS_MAX {
            assert!(!tasks.is_unswappable(id, &tag("same")));
        }
        assert!(tasks.is_unswappable(id, &tag("same")));
    }

    #[test]
    fn a_task_is_tried_again_after_a_while() {
        let tasks = UnclaimableTasks::default();
        let id = TaskId::from_random(1);
        tasks.add(id, Duration::ZERO);
        assert!(tasks.contains(id, Duration::from_mins(9)));
        assert!(!tasks.contains(id, Duration::from_mins(10)));
    }
}
