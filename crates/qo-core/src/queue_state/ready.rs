//! The order in which pending tasks are served.
//!
//! Each queue and type has its own lane, so tasks that no worker requests never block others. Within a lane each
//! priority is ordered by due time and submit order, so tasks that are not due come last and are never visited.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::id::TaskId;
use crate::names::{QueueName, TaskType};
use crate::task::PRIORITY_MAX;
use crate::time::Timestamp;

/// The position of a pending task in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadyPosition {
    pub(super) priority: u8,
    pub(super) available_at: Timestamp,
    pub(super) sequence: u64,
}

impl ReadyPosition {
    fn turn(self) -> Turn {
        (self.available_at, self.sequence)
    }
}

/// The order within one priority.
type Turn = (Timestamp, u64);
/// The tasks of one priority.
type Line = BTreeMap<Turn, TaskId>;
/// The tasks of one queue and type, by priority.
type Lane = BTreeMap<u8, Line>;

/// All pending tasks in service order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ReadyIndex {
    lanes: BTreeMap<QueueName, BTreeMap<TaskType, Lane>>,
}

impl ReadyIndex {
    pub(super) fn insert(
        &mut self,
        queue: &QueueName,
        task_type: &TaskType,
        position: ReadyPosition,
        id: TaskId,
    ) {
        // Looking up first avoids cloning known names.
        let types = match self.lanes.get_mut(queue) {
            Some(types) => types,
            None => self.lanes.entry(queue.clone()).or_default(),
        };
        let lane = match types.get_mut(task_type) {
            Some(lane) => lane,
            None => types.entry(task_type.clone()).or_default(),
        };
        lane.entry(position.priority)
            .or_default()
            .insert(position.turn(), id);
    }

    /// Removes a task and any map that becomes empty, so that unused names take no memory.
    pub(super) fn remove(
        &mut self,
        queue: &QueueName,
        task_type: &TaskType,
        position: ReadyPosition,
    ) {
        let Some(types) = self.lanes.get_mut(queue) else {
            return;
        };
        let Some(lane) = types.get_mut(task_type) else {
            return;
        };
        let Some(line) = lane.get_mut(&position.priority) else {
            return;
        };
        line.remove(&position.turn());
        if line.is_empty() {
            lane.remove(&position.priority);
        }
        if lane.is_empty() {
            types.remove(task_type);
        }
        if types.is_empty() {
            self.lanes.remove(queue);
        }
    }

    /// The first `limit` due tasks of these queues and types. An empty list means all.
    pub(super) fn due(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
        paused: &BTreeSet<QueueName>,
        now: Timestamp,
        limit: usize,
    ) -> Vec<TaskId> {
        let lanes: Vec<&Lane> = select(&self.lanes, queues)
            .into_iter()
            .filter(|(queue, _)| !paused.contains(*queue))
            .flat_map(|(_, of_queue)| select(of_queue, types))
            .map(|(_, lane)| lane)
            .collect();
        let mut due = Vec::new();
        for priority in 0..=PRIORITY_MAX {
            let lines = lanes.iter().filter_map(|lane| lane.get(&priority));
            merge_due(lines, now, limit, &mut due);
            if due.len() >= limit {
                break;
            }
        }
        due
    }

    /// The number of due tasks of these queues and types, counted up to `limit`.
    pub(super) fn count_due(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
        paused: &BTreeSet<QueueName>,
        now: Timestamp,
        limit: usize,
    ) -> usize {
        select(&self.lanes, queues)
            .into_iter()
            .filter(|(queue, _)| !paused.contains(*queue))
            .flat_map(|(_, of_queue)| select(of_queue, types))
            .flat_map(|(_, lane)| lane.values())
            .flat_map(|line| line.range(..=(now, u64::MAX)))
            .take(limit)
            .count()
    }

    /// The due time of a queue's oldest due task.
    pub(super) fn oldest_due(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        self.lanes
            .get(queue)?
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|line| line.first_key_value().map(|((at, _), _)| *at))
            .filter(|at| *at <= now)
            .min()
    }

    /// When the next task becomes due.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.lanes
            .values()
            .flat_map(BTreeMap::values)
            .flat_map(BTreeMap::values)
            .filter_map(|line| line.range((now.plus_millis(1), 0)..).next())
            .map(|((at, _), _)| *at)
            .min()
    }
}

/// The entries with these names, or all entries.
fn select<'a, N: Ord, V>(map: &'a BTreeMap<N, V>, names: &'a [N]) -> Vec<(&'a N, &'a V)> {
    if names.is_empty() {
        return map.iter().collect();
    }
    // A repeated name must not return its tasks twice.
    let names: BTreeSet<&N> = names.iter().collect();
    names
        .into_iter()
        .filter_map(|name| map.get_key_value(name))
        .collect()
}

/// Merges the due tasks of one priority's lines into `due`, in order, until it has `limit` tasks.
fn merge_due<'a>(
    lines: impl Iterator<Item = &'a Line>,
    now: Timestamp,
    limit: usize,
    due: &mut Vec<TaskId>,
) {
    let mut rest: Vec<_> = lines.map(|line| line.range(..=(now, u64::MAX))).collect();
    let mut heads: BinaryHeap<_> = rest
        .iter_mut()
        .enumerate()
        .filter_map(|(line, tasks)| tasks.next().map(|(turn, id)| Reverse((*turn, *id, line))))
        .collect();
    while due.len() < limit
        && let Some(Reverse((_, id, line))) = heads.pop()
    {
        due.push(id);
        heads.extend(
            rest[line]
                .next()
                .map(|(turn, id)| Reverse((*turn, *id, line))),
        );
    }
}
