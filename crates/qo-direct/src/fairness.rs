//! The ranks of tasks that have a group.
//!
//! Workers take the due tasks of a queue, type and priority in the order of their keys. A task with a group has a rank in its key instead of its
//! due time, so that groups are served in turn without anything being read or counted when tasks are claimed. The rank is a time, and it
//! only orders: the first task of a group gets the rank of the task at the front of the index, and each further one that this process
//! submits gets a rank [`STEP_MS`] later, or less by the weight of the group. Ten thousand tasks of one group are therefore spread over ten
//! thousand seconds of rank, and the first task of another group goes to the front.
//!
//! | what | requests |
//! | --- | --- |
//! | a submit without a group | none |
//! | submits with a group | 1 LIST of one key per second and process, for each queue, type and priority |
//! | a claim | none |
//!
//! What does not hold, because the rank is chosen once, by the process that submits:
//! - Processes do not know of each other's ranks. A group that n processes submit for gets up to n turns per round.
//! - Another weight applies to later submits.
//! - Tasks without a group are ordered by their due time: between two turns of a group come those that became due within a second.
//! - Delayed tasks are ranked by their due time, among those of their group that are due in the same minute. A retry keeps its rank.
//! - A worker first takes what it has listed: at most a page, or five seconds.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use qo_core::keys::{Key, READY_PREFIX};
use qo_core::{FairnessGroup, QueueName, QueueSettings, Task, TaskId, TaskType, Timestamp};

use super::{DirectEngine, IndexMode, lock};

/// The distance between two tasks of a group of weight 1.
const STEP_MS: u64 = 1_000;
/// The farthest that a rank is behind the front of the index or the due time.
const RANK_MAX_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// How long what was seen at the front of the index is used.
const FRONT_FRESH: Duration = Duration::from_secs(1);
/// How long a submit may take to write the entry of its task. A submit that failed does not write it at all.
const UNPUBLISHED_MAX: Duration = Duration::from_mins(1);
/// The most classes, and the most ranks of one class, that are remembered. At the limit they are forgotten.
const CLASSES_MAX: usize = 1_000;
const RANKS_MAX: usize = 100_000;

/// The tasks that are listed together, and served by priority.
type ClassName = (QueueName, TaskType, u8);

/// The ranks that this process has given.
#[derive(Default)]
pub(super) struct Ranks {
    classes: Mutex<BTreeMap<ClassName, Class>>,
    /// Held while the front of an index is listed, so that concurrent submits list it once.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Class {
    /// When the front was listed.
    looked_at: Option<Duration>,
    /// The rank of the first task in the index; `None` if it was empty.
    front: Option<Timestamp>,
    /// The last ranks of groups; for delayed tasks by the minute in which they are due.
    last: BTreeMap<(Option<u64>, FairnessGroup), Timestamp>,
    /// The tasks that have a rank and no entry yet, and when they got it.
    unpublished: BTreeMap<TaskId, Duration>,
}

impl Class {
    fn saw_front(&mut self, at: Duration, front: Option<Timestamp>) {
        self.looked_at = Some(at);
        self.front = front;
        self.unpublished
            .retain(|_, ranked_at| at < *ranked_at + UNPUBLISHED_MAX);
        match front {
            // What is before the front has been served.
            Some(front) => self.last.retain(|_, last| *last >= front),
            // The index is empty only because the entries are still to be written.
            None if !self.unpublished.is_empty() => {}
            None => self.last.retain(|(minute, _), _| minute.is_some()),
        }
        if self.last.len() > RANKS_MAX {
            self.last.clear();
        }
    }

    /// The rank of the next task of a group.
    fn next(
        &mut self,
        group: &FairnessGroup,
        due: Timestamp,
        now: Timestamp,
        weight: u32,
    ) -> Timestamp {
        let is_delayed = due > now;
        let base = match self.front {
            Some(front) if !is_delayed => front,
            _ => due,
        };
        let step = (STEP_MS / u64::from(weight.max(1))).max(1);
        let key = (is_delayed.then(|| due.minute()), group.clone());
        let next = self.last.get(&key).map(|last| last.plus_millis(step));
        let rank = next.unwrap_or(base).max(base);
        let rank = rank.min(base.plus_millis(RANK_MAX_MS));
        self.last.insert(key, rank);
        rank
    }
}

impl DirectEngine {
    /// The rank of a new task; `None` if it has no group.
    pub(super) async fn rank_of(&self, task: &Task, settings: &QueueSettings) -> Option<Timestamp> {
        let group = task.fairness_group.as_ref()?;
        if self.config().index_mode == IndexMode::LogScan {
            return None;
        }
        let name = (task.queue.clone(), task.task_type.clone(), task.priority);
        self.look_at_front(&name).await;
        let weight = settings.group_weights.get(group).copied().unwrap_or(1);
        let mut classes = lock(&self.shared.ranks.classes);
        let class = classes.entry(name).or_default();
        class
            .unpublished
            .insert(task.id, self.runtime().monotonic());
        Some(class.next(group, task.available_at, task.created_at, weight))
    }

    /// Records that the entry of a new task was written, or that the task has to wait for another one with its ordering key.
    pub(super) fn rank_is_published(&self, task: &Task) {
        if task.fairness_rank.is_none() {
            return;
        }
        let name = (task.queue.clone(), task.task_type.clone(), task.priority);
        if let Some(class) = lock(&self.shared.ranks.classes).get_mut(&name) {
            class.unpublished.remove(&task.id);
        }
    }

    /// Lists the front of an index, unless it is known. If that fails, the last known one is used: the order of tasks is not worth an error.
    async fn look_at_front(&self, name: &ClassName) {
        let ranks = &self.shared.ranks;
        let is_fresh = || {
            let classes = lock(&ranks.classes);
            let looked_at = classes.get(name).and_then(|class| class.looked_at);
            looked_at.is_some_and(|at| self.runtime().monotonic() < at + FRONT_FRESH)
        };
        if is_fresh() {
            return;
        }
        let _looking = ranks.looking.lock().await;
        if is_fresh() {
            return;
        }
        let at = self.runtime().monotonic();
        let (queue, task_type, priority) = name;
        let prefix = format!("{READY_PREFIX}/{queue}/{task_type}/{priority}");
        let front = match self.client().page(&prefix, None, 1).await {
            Ok(page) => page.entries.first().and_then(|first| {
                let Ok(Key::Ready(entry)) = first.key.parse() else {
                    return None;
                };
                Some(entry.place())
            }),
            Err(error) => {
                tracing::debug!(%queue, %error, "cannot list the front of a queue");
                lock(&ranks.classes).get(name).and_then(|class| class.front)
            }
        };
        let mut classes = lock(&ranks.classes);
        if classes.len() >= CLASSES_MAX && !classes.contains_key(name) {
            classes.clear();
        }
        classes
            .entry(name.clone())
            .or_default()
            .saw_front(at, front);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn groups_are_spread_by_their_weights_and_a_new_one_begins_at_the_front() {
        let (ada, bob): (FairnessGroup, FairnessGroup) =
            ("ada".parse().unwrap(), "bob".parse().unwrap());
        let mut class = Class::default();
        class.saw_front(Duration::ZERO, None);
        let now = at(1_000_000);
        let ranks: Vec<i64> = (0..3)
            .map(|_| class.next(&ada, now, now, 1).as_millis())
            .collect();
        assert_eq!(ranks, [1_000_000, 1_001_000, 1_002_000]);
        // The first has been served.
        class.saw_front(Duration::from_secs(1), Some(at(1_001_000)));
        let later = at(1_000_500);
        assert_eq!(class.next(&bob, later, later, 4), at(1_001_000));
        assert_eq!(class.next(&bob, later, later, 4), at(1_001_250));
        assert_eq!(class.next(&ada, later, later, 1), at(1_003_000));
        // An old backlog does not push a group behind it.
        class.saw_front(Duration::from_secs(2), Some(at(5)));
        let eve = "eve".parse().unwrap();
        assert_eq!(class.next(&eve, later, later, 1), at(5));
        // Their entries are still to be written, so an empty index says nothing.
        let id = TaskId::from_bytes([1; 16]);
        class.unpublished.insert(id, Duration::from_secs(2));
        class.saw_front(Duration::from_millis(2_500), None);
        assert_eq!(class.next(&eve, later, later, 1), later);
        assert_eq!(class.next(&ada, later, later, 1), at(1_004_000));
        class.unpublished.remove(&id);
        // Nothing waits any more.
        class.saw_front(Duration::from_secs(3), None);
        assert_eq!(class.next(&ada, later, later, 1), later);
    }

    #[test]
    fn delayed_tasks_are_spread_from_their_due_times_and_leave_the_others_alone() {
        let ada: FairnessGroup = "ada".parse().unwrap();
        let mut class = Class::default();
        class.saw_front(Duration::ZERO, None);
        let (now, due) = (at(1_000), at(600_000));
        assert_eq!(class.next(&ada, due, now, 1), due);
        assert_eq!(class.next(&ada, due, now, 1), at(601_000));
        assert_eq!(class.next(&ada, at(900_000), now, 1), at(900_000));
        assert_eq!(class.next(&ada, now, now, 1), now);
    }

    #[test]
    fn ranks_are_bounded() {
        let ada: FairnessGroup = "ada".parse().unwrap();
        let mut class = Class::default();
        class.saw_front(Duration::ZERO, Some(at(0)));
        let end = at(0).plus_millis(RANK_MAX_MS);
        class.last.insert((None, ada.clone()), end);
        assert_eq!(class.next(&ada, at(0), at(0), 1), end);
    }
}
