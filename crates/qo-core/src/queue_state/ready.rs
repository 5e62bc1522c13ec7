//! The order in which pending tasks are served.
//!
//! Each queue and type has its own lane, so tasks that no worker requests never block others. Within a lane each
//! priority is ordered by due time and submit order, so tasks that are not due come last and are never visited.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_map};
use std::ops::Bound;

use super::limited::Asked;
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
    pub(super) fn turn(self) -> Turn {
        (self.available_at, self.sequence)
    }
}

/// The order within one priority.
pub(super) type Turn = (Timestamp, u64);
/// A due task with its place in the service order, which is the order of these tuples.
pub(super) type DueTask = (u8, Turn, TaskId);
/// The tasks of one priority.
type Line = BTreeMap<Turn, TaskId>;
/// The tasks of one queue and type, by priority.
type Lane = BTreeMap<u8, Line>;

/// The name of a lane.
type LaneName = (QueueName, TaskType);
/// The first task of each line of some lanes, in service order. A claim that takes from all queues or types starts here, so its cost does
/// not depend on how many there are.
type Heads = BTreeMap<(u8, Turn, TaskId), LaneName>;

/// All pending tasks in service order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ReadyIndex {
    lanes: BTreeMap<QueueName, BTreeMap<TaskType, Lane>>,
    heads: Heads,
    queue_heads: BTreeMap<QueueName, Heads>,
    type_heads: BTreeMap<TaskType, Heads>,
    /// The number of tasks that become due at each time.
    due_times: BTreeMap<Timestamp, usize>,
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
        let line = lane.entry(position.priority).or_default();
        let first = line.first_key_value().map(|(turn, id)| (*turn, *id));
        line.insert(position.turn(), id);
        self.add_due_time(position.available_at);
        if first.is_none_or(|(turn, _)| position.turn() <= turn) {
            let priority = position.priority;
            if let Some((turn, id)) = first {
                self.remove_head(queue, task_type, (priority, turn, id));
            }
            self.add_head(queue, task_type, (priority, position.turn(), id));
        }
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
        let was_first = line.first_key_value().map(|(turn, _)| *turn) == Some(position.turn());
        let Some(id) = line.remove(&position.turn()) else {
            return;
        };
        let next = line.first_key_value().map(|(turn, id)| (*turn, *id));
        if line.is_empty() {
            lane.remove(&position.priority);
        }
        if lane.is_empty() {
            types.remove(task_type);
        }
        if types.is_empty() {
            self.lanes.remove(queue);
        }
        self.remove_due_time(position.available_at);
        if was_first {
            let priority = position.priority;
            self.remove_head(queue, task_type, (priority, position.turn(), id));
            if let Some((turn, id)) = next {
                self.add_head(queue, task_type, (priority, turn, id));
            }
        }
    }

    /// Counts a task that becomes due then, here or in a group.
    pub(super) fn add_due_time(&mut self, at: Timestamp) {
        *self.due_times.entry(at).or_default() += 1;
    }

    pub(super) fn remove_due_time(&mut self, at: Timestamp) {
        if let Some(count) = self.due_times.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.due_times.remove(&at);
            }
        }
    }

    /// The tasks of these types in one queue and priority; an empty list means all types.
    pub(super) fn lines(
        &self,
        queue: &QueueName,
        priority: u8,
        types: &[TaskType],
    ) -> impl Iterator<Item = (&TaskType, &Line)> {
        let lanes = self.lanes.get(queue).into_iter().flatten();
        let asked = lanes.filter(|(task_type, _)| types.is_empty() || types.contains(task_type));
        asked.filter_map(move |(task_type, lane)| Some((task_type, lane.get(&priority)?)))
    }

    fn add_head(&mut self, queue: &QueueName, task_type: &TaskType, head: (u8, Turn, TaskId)) {
        let lane = (queue.clone(), task_type.clone());
        match self.queue_heads.get_mut(queue) {
            Some(heads) => heads,
            None => self.queue_heads.entry(queue.clone()).or_default(),
        }
        .insert(head, lane.clone());
        match self.type_heads.get_mut(task_type) {
            Some(heads) => heads,
            None => self.type_heads.entry(task_type.clone()).or_default(),
        }
        .insert(head, lane.clone());
        self.heads.insert(head, lane);
    }

    fn remove_head(&mut self, queue: &QueueName, task_type: &TaskType, head: (u8, Turn, TaskId)) {
        self.heads.remove(&head);
        if let Some(heads) = self.queue_heads.get_mut(queue) {
            heads.remove(&head);
            if heads.is_empty() {
                self.queue_heads.remove(queue);
            }
        }
        if let Some(heads) = self.type_heads.get_mut(task_type) {
            heads.remove(&head);
            if heads.is_empty() {
                self.type_heads.remove(task_type);
            }
        }
    }

    /// The first `limit` due tasks that are asked for, with their place in the service order.
    pub(super) fn due(&self, asked: Asked<'_>, now: Timestamp, limit: usize) -> Vec<DueTask> {
        let mut due = Vec::new();
        for priority in 0..=PRIORITY_MAX {
            let mut merge = Merge {
                index: self,
                asked,
                priority,
                now,
                sources: Vec::new(),
                next: BinaryHeap::new(),
            };
            match (asked.queues, asked.types) {
                ([], []) => merge.add_heads(&self.heads),
                (queues, []) => merge.add_all_heads(&self.queue_heads, queues),
                ([], types) => merge.add_all_heads(&self.type_heads, types),
                (queues, types) => {
                    for (queue, of_queue) in select(&self.lanes, queues) {
                        for (task_type, lane) in select(of_queue, types) {
                            if asked.serves(queue, task_type) {
                                merge.add_line(lane);
                            }
                        }
                    }
                }
            }
            while due.len() < limit
                && let Some((turn, id)) = merge.next()
            {
                due.push((priority, turn, id));
            }
            if due.len() >= limit {
                break;
            }
        }
        due
    }

    /// Whether any task is due.
    pub(super) fn has_due(&self, now: Timestamp) -> bool {
        self.due_times
            .first_key_value()
            .is_some_and(|(at, _)| *at <= now)
    }

    /// Whether there are no tasks.
    pub(super) fn is_empty(&self) -> bool {
        self.due_times.is_empty()
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
        let later = self.due_times.range(now.plus_millis(1)..);
        later.map(|(at, _)| *at).next()
    }
}

/// The entries with these names.
fn select<'a, N: Ord, V>(
    map: &'a BTreeMap<N, V>,
    names: &'a [N],
) -> impl Iterator<Item = (&'a N, &'a V)> {
    // A repeated name must not return its tasks twice.
    let names: BTreeSet<&N> = names.iter().collect();
    names.into_iter().filter_map(|name| map.get_key_value(name))
}

/// Merges the due tasks of one priority in service order. Looks only at the lines that it takes from, at one head more for each source,
/// and at the heads of queues and types that are paused or served elsewhere.
struct Merge<'a> {
    index: &'a ReadyIndex,
    asked: Asked<'a>,
    priority: u8,
    now: Timestamp,
    sources: Vec<Source<'a>>,
    /// The next task of each source.
    next: BinaryHeap<Reverse<(Turn, TaskId, usize)>>,
}

enum Source<'a> {
    /// The rest of a line.
    Line(btree_map::Range<'a, Turn, TaskId>),
    /// Heads of lines that are not opened yet, and the lane of the head that is next.
    Heads(
        btree_map::Range<'a, (u8, Turn, TaskId), LaneName>,
        Option<&'a LaneName>,
    ),
}

impl<'a> Merge<'a> {
    fn add_line(&mut self, lane: &'a Lane) {
        if let Some(line) = lane.get(&self.priority) {
            let due = line.range(..=(self.now, u64::MAX));
            self.add(Source::Line(due));
        }
    }

    fn add_heads(&mut self, heads: &'a Heads) {
        let id = TaskId::from_bytes([0; 16]);
        let begin = (self.priority, (Timestamp::MIN, 0), id);
        let end = (self.priority, (self.now.plus_millis(1), 0), id);
        self.add(Source::Heads(heads.range(begin..end), None));
    }

    fn add_all_heads<N: Ord>(&mut self, maps: &'a BTreeMap<N, Heads>, names: &'a [N]) {
        for (_, heads) in select(maps, names) {
            self.add_heads(heads);
        }
    }

    fn add(&mut self, source: Source<'a>) {
        self.sources.push(source);
        self.advance(self.sources.len() - 1);
    }

    /// Puts the next task of a source into the order.
    fn advance(&mut self, number: usize) {
        let next = match self.sources.get_mut(number) {
            None => None,
            Some(Source::Line(rest)) => rest.next().map(|(turn, id)| (*turn, *id)),
            Some(Source::Heads(rest, lane)) => {
                let asked = self.asked;
                let head = rest.find(|(_, (queue, task_type))| asked.serves(queue, task_type));
                *lane = head.map(|(_, lane)| lane);
                head.map(|((_, turn, id), _)| (*turn, *id))
            }
        };
        self.next
            .extend(next.map(|(turn, id)| Reverse((turn, id, number))));
    }

    fn next(&mut self) -> Option<(Turn, TaskId)> {
        let Reverse((turn, id, number)) = self.next.pop()?;
        if let Some(Source::Heads(_, Some((queue, task_type)))) = self.sources.get(number) {
            let lane = self
                .index
                .lanes
                .get(queue)
                .and_then(|types| types.get(task_type));
            if let Some(line) = lane.and_then(|lane| lane.get(&self.priority)) {
                let after = (Bound::Excluded(turn), Bound::Included((self.now, u64::MAX)));
                // An empty range would be invalid if the head were the last possible one.
                if turn < (self.now, u64::MAX) {
                    self.add(Source::Line(line.range(after)));
                }
            }
        }
        self.advance(number);
        Some((turn, id))
    }
}
