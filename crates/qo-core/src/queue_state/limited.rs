//! The ready tasks, grouped by the limits that apply to them.
//!
//! All tasks of a group may start, or none: each of its limits must have room. A claim visits the groups with room and takes the most urgent
//! tasks of all of them, so tasks that wait for a limit are never visited, however many there are, and do not block the tasks behind them. The
//! running task itself holds the slot of a limit: the slot is not stored anywhere else, and a new leader finds it with the task.
//!
//! Tasks with a fairness group are apart ([`super::fair`]), and a claim merges them with the others of their queue ([`super::fair_walk`]).
//!
//! The cost of a claim grows with the number of groups, which is at most the number of combinations of limits that waiting tasks are under, and
//! with the number of requested queues in which fairness groups wait. Adding or removing a limit takes one pass over all tasks; changing its
//! bounds costs nothing.

use std::collections::BTreeMap;

use super::fair::{Class, FairReady, Place, Weights};
use super::fair_walk::Walk;
use super::ready::{DueTask, ReadyIndex, ReadyPosition};
use crate::id::TaskId;
use crate::limit::{Limit, LimitRules, LimitUsage, LimitWait, StartWindow};
use crate::names::{DocumentName, FairnessGroup, LimitKey, QueueName, TaskType};
use crate::pause::Pauses;
use crate::task::PRIORITY_MAX;
use crate::time::Timestamp;

/// What limits select tasks by, and whose turn counts.
#[derive(Clone, Copy)]
pub(super) struct Selected<'a> {
    pub(super) queue: &'a QueueName,
    pub(super) task_type: &'a TaskType,
    pub(super) limit_key: Option<&'a LimitKey>,
    pub(super) fairness_group: Option<&'a FairnessGroup>,
}

/// The tasks that a claim asks for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) queues: &'a [QueueName],
    pub(super) types: &'a [TaskType],
    pub(super) pauses: &'a Pauses,
    pub(super) fair: &'a FairReady,
}

impl Asked<'_> {
    /// Whether the claim takes such tasks by their age alone: they are not paused, and no groups take turns in their queue.
    pub(super) fn serves(&self, queue: &QueueName, task_type: &TaskType) -> bool {
        !self.pauses.stop(queue, task_type) && !self.fair.has(queue)
    }
}

/// The limits that apply to the tasks of a group, ordered by name.
type Group = Vec<DocumentName>;

/// What is used of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Usage {
    running: u32,
    starts: StartWindow,
}

/// All pending tasks in service order, by the limits that apply to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LimitedReady {
    rules: LimitRules,
    /// The tasks without a limit.
    free: ReadyIndex,
    /// The tasks of each other group. There are no empty groups.
    groups: BTreeMap<Group, ReadyIndex>,
    /// The tasks that have a fairness group, whatever their limits. Their due times are counted in the indexes above.
    fair: FairReady,
    /// What is used of each limit.
    usage: BTreeMap<DocumentName, Usage>,
}

impl<'a> Selected<'a> {
    fn place(self, position: ReadyPosition) -> Option<Place<'a>> {
        let group = self.fairness_group?;
        Some(Place {
            queue: self.queue,
            group,
            position,
        })
    }
}

impl LimitedReady {
    /// Replaces the limits. Returns whether tasks may now belong to other groups, so that all of them must be added again.
    pub(super) fn set_rules(
        &mut self,
        rules: LimitRules,
        mut starts: impl FnMut(&DocumentName) -> StartWindow,
    ) -> bool {
        let regroups = !self.rules.has_selectors_of(&rules);
        let known = std::mem::take(&mut self.usage);
        self.usage = (rules.iter())
            .map(|(name, _)| {
                let running = known.get(name).map_or(0, |usage| usage.running);
                let starts = starts(name);
                (name.clone(), Usage { running, starts })
            })
            .collect();
        self.rules = rules;
        regroups
    }

    /// The same limits and starts, without tasks.
    pub(super) fn emptied(&self) -> Self {
        let mut usage = self.usage.clone();
        for one in usage.values_mut() {
            one.running = 0;
        }
        Self {
            rules: self.rules.clone(),
            free: ReadyIndex::default(),
            groups: BTreeMap::new(),
            fair: self.fair.emptied(),
            usage,
        }
    }

    /// Whether any limit applies to these tasks.
    pub(super) fn is_limited(&self, of: Selected<'_>) -> bool {
        !self.group(of).is_empty()
    }

    fn group(&self, of: Selected<'_>) -> Group {
        self.rules.applying(of.queue, of.task_type, of.limit_key)
    }

    pub(super) fn insert(&mut self, of: Selected<'_>, position: ReadyPosition, id: TaskId) {
        let group = self.group(of);
        let index = if group.is_empty() {
            &mut self.free
        } else {
            self.groups.entry(group).or_default()
        };
        if let Some(place) = of.place(position) {
            index.add_due_time(position.available_at);
            let lane = (self.group(of), of.task_type.clone());
            self.fair.insert(lane, place, id);
        } else {
            index.insert(of.queue, of.task_type, position, id);
        }
    }

    pub(super) fn remove(&mut self, of: Selected<'_>, position: ReadyPosition) {
        let group = self.group(of);
        let index = if group.is_empty() {
            Some(&mut self.free)
        } else {
            self.groups.get_mut(&group)
        };
        let Some(index) = index else { return };
        let place = of.place(position);
        if place.is_some() {
            index.remove_due_time(position.available_at);
        } else {
            index.remove(of.queue, of.task_type, position);
        }
        if index.is_empty() && !group.is_empty() {
            self.groups.remove(&group);
        }
        if let Some(place) = place {
            let lane = (group, of.task_type.clone());
            self.fair.remove(&lane, place);
        }
    }

    /// Sets the turns of groups per round.
    pub(super) fn set_weights(&mut self, queue: &QueueName, weights: Weights) {
        self.fair.set_weights(queue, weights);
    }

    /// Forgets the turns of the queues in which no task with a group waits any more.
    pub(super) fn forget_turns(&mut self) {
        self.fair.forget_empty();
    }

    /// Counts the turn of a task that was claimed.
    pub(super) fn take_turn(&mut self, of: Selected<'_>, priority: u8) {
        self.fair.take_turn(of.queue, priority, of.fairness_group);
    }

    /// Whether groups take turns in any queue.
    pub(super) fn takes_turns(&self) -> bool {
        self.fair.queues().next().is_some()
    }

    /// Whether groups take turns in the queue of a task.
    pub(super) fn has_turns(&self, of: Selected<'_>) -> bool {
        self.fair.has(of.queue)
    }

    /// Takes the slots of a task that is running now.
    pub(super) fn take_slots(&mut self, of: Selected<'_>) {
        for name in self.group(of) {
            if let Some(usage) = self.usage.get_mut(&name) {
                usage.running = usage.running.saturating_add(1);
            }
        }
    }

    /// Returns the slots of a task that is no longer running.
    pub(super) fn return_slots(&mut self, of: Selected<'_>) {
        for name in self.group(of) {
            if let Some(usage) = self.usage.get_mut(&name) {
                usage.running = usage.running.saturating_sub(1);
            }
        }
    }

    /// Records the start of an attempt. Returns the limits that count starts.
    pub(super) fn record_start(&mut self, of: Selected<'_>, now: Timestamp) -> Vec<DocumentName> {
        let mut counting = self.group(of);
        counting.retain(|name| {
            let limit = self.rules.get(name).and_then(|limit| limit.starts);
            let (Some(limit), Some(usage)) = (limit, self.usage.get_mut(name)) else {
                return false;
            };
            usage.starts.record(limit, now);
            true
        });
        counting
    }

    /// The recent starts under a limit.
    pub(super) fn starts(&self, name: &DocumentName) -> StartWindow {
        self.usage
            .get(name)
            .map_or_else(StartWindow::default, |usage| usage.starts.clone())
    }

    /// Whether a task may start.
    pub(super) fn has_room(&self, of: Selected<'_>, now: Timestamp) -> bool {
        self.room(&self.group(of), now) > 0
    }

    /// Why a task cannot start; `None` if it can.
    pub(super) fn wait(&self, of: Selected<'_>, now: Timestamp) -> Option<LimitWait> {
        let group = self.group(of);
        let mut waits = group.iter().filter_map(|name| {
            let (limit, usage) = self.limit(name)?;
            limit.wait(name, usage.running, &usage.starts, now)
        });
        waits.next()
    }

    /// What is used of each limit.
    pub(super) fn usages(&self, now: Timestamp) -> BTreeMap<DocumentName, LimitUsage> {
        let usages = self.usage.iter().filter_map(|(name, used)| {
            let limit = self.rules.get(name)?;
            Some((name.clone(), limit.usage(used.running, &used.starts, now)))
        });
        usages.collect()
    }

    fn limit(&self, name: &DocumentName) -> Option<(&Limit, &Usage)> {
        Some((self.rules.get(name)?, self.usage.get(name)?))
    }

    fn room(&self, group: &[DocumentName], now: Timestamp) -> usize {
        let rooms = group.iter().filter_map(|name| {
            let (limit, usage) = self.limit(name)?;
            usize::try_from(limit.room(usage.running, &usage.starts, now)).ok()
        });
        rooms.min().unwrap_or(usize::MAX)
    }

    /// When the limits of a group have room without any slot being returned; `None` if they have, or if that does not follow from the time.
    fn opens_at(&self, group: &[DocumentName], now: Timestamp) -> Option<Timestamp> {
        let mut opens_at = None;
        for name in group {
            let (limit, usage) = self.limit(name)?;
            if let Some(wait) = limit.wait(name, usage.running, &usage.starts, now) {
                opens_at = opens_at.max(Some(wait.until?));
            }
        }
        opens_at
    }

    /// The first `limit` due tasks that a claim may take, most urgent first, each with its urgency. Of the tasks that share a limit, there may
    /// be more than it has room for; the first one always fits.
    pub(super) fn due(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
        pauses: &Pauses,
        now: Timestamp,
        limit: usize,
    ) -> Vec<DueTask> {
        let asked = Asked {
            queues,
            types,
            pauses,
            fair: &self.fair,
        };
        let mut due = self.free.due(asked, now, limit);
        let mut is_merged = false;
        for (group, index) in &self.groups {
            let room = self.room(group, now);
            if room > 0 && index.has_due(now) {
                due.extend(index.due(asked, now, limit.min(room)));
                is_merged = true;
            }
        }
        for queue in self.fair.queues() {
            let is_asked = queues.is_empty() || queues.contains(queue);
            if is_asked && !pauses.queues.contains_key(queue) {
                self.walk(queue, asked, now, limit, &mut due);
                is_merged = true;
            }
        }
        if is_merged {
            // The sort is stable, because the tasks of a walk that are as urgent as the same oldest task keep their order.
            due.sort_by_key(|(priority, turn, _)| (*priority, *turn));
            due.truncate(limit);
        }
        due
    }

    /// The first due tasks of a queue whose groups take turns.
    fn walk(
        &self,
        queue: &QueueName,
        asked: Asked<'_>,
        now: Timestamp,
        limit: usize,
        due: &mut Vec<DueTask>,
    ) {
        let types: &[TaskType] = asked.types;
        let weights = self.fair.weights(queue);
        let is_served = |task_type: &TaskType| !asked.pauses.stop(queue, task_type);
        let end = due.len() + limit;
        for priority in 0..=PRIORITY_MAX {
            let none = Class::default();
            let class = self.fair.class(queue, priority).unwrap_or(&none);
            let mut walk = Walk::new(class, weights, now);
            let mut rooms: BTreeMap<&[DocumentName], usize> = BTreeMap::new();
            let indexes = self.groups.iter().filter(|(_, index)| index.has_due(now));
            let indexes = indexes.map(|(limits, index)| (limits.as_slice(), index));
            for (limits, index) in indexes.chain([(&[] as &[DocumentName], &self.free)]) {
                let room = self.room(limits, now);
                if room == 0 {
                    continue;
                }
                let room = walk.add_room(room);
                rooms.insert(limits, room);
                for (task_type, line) in index.lines(queue, priority, types) {
                    if is_served(task_type) {
                        walk.add_plain(line, room);
                    }
                }
            }
            for lane in class.lanes() {
                let (limits, task_type) = lane;
                let is_asked = types.is_empty() || types.contains(task_type);
                if let Some(room) = rooms.get(limits.as_slice())
                    && is_asked
                    && is_served(task_type)
                {
                    walk.add_lane(lane, *room);
                }
            }
            while due.len() < end
                && let Some((turn, id)) = walk.next()
            {
                due.push((priority, turn, id));
            }
        }
    }

    /// The due time of a queue's oldest due task.
    pub(super) fn oldest_due(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        let indexes = [&self.free].into_iter().chain(self.groups.values());
        let plain = indexes.filter_map(|index| index.oldest_due(queue, now));
        plain.chain(self.fair.oldest_due(queue, now)).min()
    }

    /// When the next task becomes due, or due tasks may start because time has passed.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let groups = self.groups.iter().flat_map(|(group, index)| {
            let opens_at = self.opens_at(group, now).filter(|_| index.has_due(now));
            [index.next_due(now), opens_at]
        });
        groups.flatten().chain(self.free.next_due(now)).min()
    }
}
