//! The turns of groups.
//!
//! Tasks of one queue and priority form a class. Its groups are served in rounds: in each round a group gets as many turns as its weight, and
//! within a round the oldest task goes first. Tasks without a group form one group, with weight 1. A group that has used its turns waits until
//! the round ends, which is when no other group has a task that a claim may take. So a group whose tasks all wait for a limit, for a paused
//! type or for their due time delays nobody, and loses no turns.
//!
//! Only tasks with a group are here; those without one stay in [`ReadyIndex`](super::ready::ReadyIndex), so that a queue without groups is
//! served as if there were none. A class is dropped with the command after which no task with a group waits in it. The turns of a group
//! without tasks are remembered until the round ends. Otherwise a client that submits one task after another would get more than its share.
//!
//! The turns are not stored: a process that takes over begins a new round.

use std::collections::{BTreeMap, BTreeSet};

use super::ready::{ReadyPosition, Turn};
use crate::id::TaskId;
use crate::names::{DocumentName, FairnessGroup, QueueName, TaskType};
use crate::time::Timestamp;

/// The groups without tasks whose turns are remembered, at most. A round with more ends early.
const IDLE_MAX: usize = 10_000;

/// The tasks of a class that the same limits apply to, and that have the same type: a claim takes from all of them, or from none.
pub(super) type Lane = (Vec<DocumentName>, TaskType);
/// The tasks of one group in a lane.
pub(super) type Line = BTreeMap<Turn, TaskId>;
/// The first task of each group in a lane.
pub(super) type GroupHeads = BTreeMap<Turn, FairnessGroup>;
/// The turns of groups per round, if they are not 1.
pub(super) type Weights = BTreeMap<FairnessGroup, u32>;

/// Where a task with a group waits.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) queue: &'a QueueName,
    pub(super) group: &'a FairnessGroup,
    pub(super) position: ReadyPosition,
}

/// The waiting tasks that have a group, by queue and priority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FairReady {
    classes: BTreeMap<QueueName, BTreeMap<u8, Class>>,
    /// The classes that have become empty. A task that moves within its class leaves it for a moment, and the turns must outlast that.
    emptied: BTreeSet<(QueueName, u8)>,
    weights: BTreeMap<QueueName, Weights>,
}

/// The groups of one queue and priority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Class {
    /// The tasks of each group.
    pub(super) groups: BTreeMap<FairnessGroup, BTreeMap<Lane, Line>>,
    /// The heads of the groups that have turns left in this round.
    pub(super) open: BTreeMap<Lane, GroupHeads>,
    /// The heads of the groups that rest.
    pub(super) resting: BTreeMap<Lane, GroupHeads>,
    pub(super) round: Round,
}

/// A group, or the tasks without one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flow(pub(super) Option<FairnessGroup>);

/// The turns that groups have used in a round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Round {
    used: BTreeMap<Flow, u32>,
    resting: BTreeSet<Flow>,
}

impl Round {
    pub(super) fn is_resting(&self, flow: &Flow) -> bool {
        self.resting.contains(flow)
    }

    pub(super) fn used(&self, flow: &Flow) -> u32 {
        self.used.get(flow).copied().unwrap_or(0)
    }

    /// Uses a turn. Returns whether the group rests from now on.
    fn take_turn(&mut self, flow: &Flow, weight: u32) -> bool {
        let used = self.used.entry(flow.clone()).or_default();
        *used = used.saturating_add(1);
        let rests = *used >= weight;
        if rests {
            self.resting.insert(flow.clone());
        }
        rests
    }
}

impl FairReady {
    /// Sets the turns of groups per round. A new round of the queue begins.
    pub(super) fn set_weights(&mut self, queue: &QueueName, weights: Weights) {
        if weights == *self.weights(queue) {
            return;
        }
        if weights.is_empty() {
            self.weights.remove(queue);
        } else {
            self.weights.insert(queue.clone(), weights);
        }
        for class in self.classes.get_mut(queue).into_iter().flatten() {
            class.1.end_round();
        }
    }

    pub(super) fn weights(&self, queue: &QueueName) -> &Weights {
        static NONE: Weights = Weights::new();
        self.weights.get(queue).unwrap_or(&NONE)
    }

    /// The same weights and turns, without tasks.
    pub(super) fn emptied(&self) -> Self {
        let emptied = |class: &Class| Class {
            round: class.round.clone(),
            ..Class::default()
        };
        let classes = self.classes.iter().map(|(queue, classes)| {
            let classes = classes.iter();
            let classes = classes.map(|(priority, class)| (*priority, emptied(class)));
            (queue.clone(), classes.collect())
        });
        Self {
            classes: classes.collect(),
            emptied: self.emptied.clone(),
            weights: self.weights.clone(),
        }
    }

    /// Whether a queue has waiting tasks with a group.
    pub(super) fn has(&self, queue: &QueueName) -> bool {
        self.classes.contains_key(queue)
    }

    /// The queues that have waiting tasks with a group.
    pub(super) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.classes.keys()
    }

    pub(super) fn class(&self, queue: &QueueName, priority: u8) -> Option<&Class> {
        self.classes.get(queue)?.get(&priority)
    }

    pub(super) fn insert(&mut self, lane: Lane, at: Place<'_>, id: TaskId) {
        let classes = match self.classes.get_mut(at.queue) {
            Some(classes) => classes,
            None => self.classes.entry(at.queue.clone()).or_default(),
        };
        let class = classes.entry(at.position.priority).or_default();
        class.insert(lane, at.group, at.position.turn(), id);
    }

    /// Removes a task and everything that becomes empty but its class.
    pub(super) fn remove(&mut self, lane: &Lane, at: Place<'_>) {
        let Some(classes) = self.classes.get_mut(at.queue) else {
            return;
        };
        let priority = at.position.priority;
        if let Some(class) = classes.get_mut(&priority) {
            class.remove(lane, at.group, at.position.turn());
            if class.groups.is_empty() {
                self.emptied.insert((at.queue.clone(), priority));
            }
        }
    }

    /// Forgets the classes that are empty after a command.
    pub(super) fn forget_empty(&mut self) {
        while let Some((queue, priority)) = self.emptied.pop_first() {
            let Some(classes) = self.classes.get_mut(&queue) else {
                continue;
            };
            if (classes.get(&priority)).is_some_and(|class| class.groups.is_empty()) {
                classes.remove(&priority);
            }
            if classes.is_empty() {
                self.classes.remove(&queue);
            }
        }
    }

    /// Counts the turn of a task that was claimed.
    pub(super) fn take_turn(
        &mut self,
        queue: &QueueName,
        priority: u8,
        group: Option<&FairnessGroup>,
    ) {
        let weight = weight_of(self.weights(queue), group);
        let classes = self.classes.get_mut(queue);
        if let Some(class) = classes.and_then(|classes| classes.get_mut(&priority)) {
            class.take_turn(group, weight);
        }
    }

    /// The due time of a queue's oldest due task.
    pub(super) fn oldest_due(&self, queue: &QueueName, now: Timestamp) -> Option<Timestamp> {
        let classes = self.classes.get(queue)?.values();
        let lanes = classes.flat_map(|class| class.open.values().chain(class.resting.values()));
        let heads = lanes.filter_map(|heads| heads.first_key_value().map(|((at, _), _)| *at));
        heads.filter(|at| *at <= now).min()
    }
}

/// The turns of a group per round.
pub(super) fn weight_of(weights: &Weights, group: Option<&FairnessGroup>) -> u32 {
    let weight = group.and_then(|group| weights.get(group).copied());
    weight.unwrap_or(1).max(1)
}

impl Class {
    /// The lanes that have tasks.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        let also_open = |lane: &&Lane| !self.open.contains_key(*lane);
        self.open
            .keys()
            .chain(self.resting.keys().filter(also_open))
    }

    fn insert(&mut self, lane: Lane, group: &FairnessGroup, turn: Turn, id: TaskId) {
        let lines = match self.groups.get_mut(group) {
            Some(lines) => lines,
            None => self.groups.entry(group.clone()).or_default(),
        };
        let line = lines.entry(lane.clone()).or_default();
        let first = line.first_key_value().map(|(turn, _)| *turn);
        line.insert(turn, id);
        if first.is_none_or(|first| turn <= first) {
            let heads = self.heads_of(group).entry(lane).or_default();
            first.map(|first| heads.remove(&first));
            heads.insert(turn, group.clone());
        }
    }

    fn remove(&mut self, lane: &Lane, group: &FairnessGroup, turn: Turn) {
        let Some(lines) = self.groups.get_mut(group) else {
            return;
        };
        let Some(line) = lines.get_mut(lane) else {
            return;
        };
        let was_first = line.first_key_value().map(|(first, _)| *first) == Some(turn);
        line.remove(&turn);
        let next = line.first_key_value().map(|(turn, _)| *turn);
        if line.is_empty() {
            lines.remove(lane);
        }
        if lines.is_empty() {
            self.groups.remove(group);
        }
        if was_first {
            let lanes = self.heads_of(group);
            move_head(lanes, lane, turn, None);
            if let Some(next) = next {
                let heads = lanes.entry(lane.clone()).or_default();
                heads.insert(next, group.clone());
            }
        }
    }

    /// The heads among which those of a group are.
    fn heads_of(&mut self, group: &FairnessGroup) -> &mut BTreeMap<Lane, GroupHeads> {
        if self.round.is_resting(&Flow(Some(group.clone()))) {
            &mut self.resting
        } else {
            &mut self.open
        }
    }

    fn take_turn(&mut self, group: Option<&FairnessGroup>, weight: u32) {
        let flow = Flow(group.cloned());
        let is_crowded = self.round.used.len() > self.groups.len() + IDLE_MAX;
        if self.round.is_resting(&flow) || is_crowded {
            // Nobody else had a task for this claim.
            self.end_round();
        }
        let rests = self.round.take_turn(&flow, weight);
        let lines = group.and_then(|group| self.groups.get(group));
        if let (true, Some(lines)) = (rests, lines) {
            for (lane, line) in lines {
                if let Some((turn, _)) = line.first_key_value() {
                    move_head(&mut self.open, lane, *turn, Some(&mut self.resting));
                }
            }
        }
    }

    /// All groups have their turns again. Each group that rested has had a turn in this round, so this costs no more than these.
    fn end_round(&mut self) {
        self.round = Round::default();
        for (lane, heads) in std::mem::take(&mut self.resting) {
            self.open.entry(lane).or_default().extend(heads);
        }
    }
}

/// Takes a head from its lane, and puts it into the same lane elsewhere.
fn move_head(
    from: &mut BTreeMap<Lane, GroupHeads>,
    lane: &Lane,
    turn: Turn,
    to: Option<&mut BTreeMap<Lane, GroupHeads>>,
) {
    let Some(heads) = from.get_mut(lane) else {
        return;
    };
    let head = heads.remove(&turn);
    if heads.is_empty() {
        from.remove(lane);
    }
    if let (Some(head), Some(to)) = (head, to) {
        let heads = match to.get_mut(lane) {
            Some(heads) => heads,
            None => to.entry(lane.clone()).or_default(),
        };
        heads.insert(turn, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_tasks_are_forgotten_with_the_round_and_a_round_is_bounded() {
        let queue = QueueName::default();
        let lane: Lane = (Vec::new(), "t".parse().unwrap());
        let mut fair = FairReady::default();
        let group = |number: u64| -> FairnessGroup { format!("g{number}").parse().unwrap() };
        let position = |sequence: u64| ReadyPosition {
            priority: 5,
            available_at: Timestamp::from_millis(0),
            sequence,
        };
        let id = |number: u64| TaskId::from_bytes(u128::from(number).to_be_bytes());
        let blocked = group(0);
        let of_blocked = |sequence| Place {
            queue: &queue,
            group: &blocked,
            position: position(sequence),
        };
        fair.insert(lane.clone(), of_blocked(0), id(0));
        let most = 3 * IDLE_MAX as u64;
        for number in 1..most {
            let group = group(number);
            let place = Place {
                queue: &queue,
                group: &group,
                position: position(number),
            };
            fair.insert(lane.clone(), place, id(number));
            fair.remove(&lane, place);
            fair.take_turn(&queue, 5, Some(&group));
            let used = fair.class(&queue, 5).unwrap().round.used.len();
            assert!(used <= IDLE_MAX + 2, "{used}");
        }
        // Its second turn ends the round.
        fair.insert(lane.clone(), of_blocked(most), id(most));
        fair.take_turn(&queue, 5, Some(&blocked));
        fair.take_turn(&queue, 5, Some(&blocked));
        assert_eq!(fair.class(&queue, 5).unwrap().round.used.len(), 1);
        fair.remove(&lane, of_blocked(0));
        fair.remove(&lane, of_blocked(most));
        fair.forget_empty();
        assert_eq!(fair, FairReady::default());
    }
}
