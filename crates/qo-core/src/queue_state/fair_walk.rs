//! The order in which a claim takes the tasks of a class whose groups are served in turn.
//!
//! The walk simulates the rounds in advance and changes nothing: claims first select tasks, and then count the turns of those that they take. It
//! visits the heads of groups by age, one more than it takes from each lane. Its cost grows with the number of tasks that it returns and of
//! lanes that it visits, not with the number of groups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, btree_map};
use std::ops::Bound;

use super::fair::{Class, Flow, GroupHeads, Lane, Weights, weight_of};
use super::ready::Turn;
use crate::id::TaskId;
use crate::names::FairnessGroup;
use crate::time::Timestamp;

type Rest<'a> = btree_map::Range<'a, Turn, TaskId>;
type Heads<'a> = btree_map::Range<'a, Turn, FairnessGroup>;

/// A task that may be next, and what follows it in its line.
struct Candidate<'a> {
    id: TaskId,
    flow: Flow,
    rest: Rest<'a>,
    /// The room that it needs.
    room: usize,
    /// The heads that it was taken from, until the next one is taken.
    heads: Option<usize>,
}

/// The heads of a lane that are not taken yet.
struct HeadSource<'a> {
    lane: &'a Lane,
    heads: Heads<'a>,
    room: usize,
}

/// A walk through the rounds of a class.
pub(super) struct Walk<'a> {
    class: &'a Class,
    weights: &'a Weights,
    now: Timestamp,
    sources: Vec<HeadSource<'a>>,
    candidates: Vec<Candidate<'a>>,
    /// The candidates of this round, by age.
    next: BinaryHeap<Reverse<(Turn, usize)>>,
    /// The candidates of groups that rest, by age.
    later: BinaryHeap<Reverse<(Turn, usize)>>,
    /// The heads that rested before the walk, until their round comes.
    resting: Vec<HeadSource<'a>>,
    /// The oldest of these.
    resting_oldest: Option<Turn>,
    /// The turns of this round, if they are not those of the class.
    used: BTreeMap<Flow, u32>,
    rests: BTreeSet<Flow>,
    is_first_round: bool,
    /// How many more tasks the limits allow, for each set of limits.
    rooms: Vec<usize>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(class: &'a Class, weights: &'a Weights, now: Timestamp) -> Self {
        Self {
            class,
            weights,
            now,
            sources: Vec::new(),
            candidates: Vec::new(),
            next: BinaryHeap::new(),
            later: BinaryHeap::new(),
            resting: Vec::new(),
            resting_oldest: None,
            used: BTreeMap::new(),
            rests: BTreeSet::new(),
            is_first_round: true,
            rooms: Vec::new(),
        }
    }

    /// Adds a set of limits that have this much room. Returns its number.
    pub(super) fn add_room(&mut self, room: usize) -> usize {
        self.rooms.push(room);
        self.rooms.len() - 1
    }

    /// Adds tasks without a group.
    pub(super) fn add_plain(&mut self, line: &'a BTreeMap<Turn, TaskId>, room: usize) {
        let mut rest = line.range(..=(self.now, u64::MAX));
        if let Some((turn, id)) = rest.next() {
            let candidate = Candidate {
                id: *id,
                flow: Flow(None),
                rest,
                room,
                heads: None,
            };
            self.add(*turn, candidate);
        }
    }

    /// Adds the groups of a lane.
    pub(super) fn add_lane(&mut self, lane: &'a Lane, room: usize) {
        let due = |heads: &'a GroupHeads| HeadSource {
            lane,
            heads: heads.range(..=(self.now, u64::MAX)),
            room,
        };
        let open = self.class.open.get(lane).map(due);
        let resting = self.class.resting.get(lane).map(due);
        if let Some(source) = resting {
            let first = source.heads.clone().next().map(|(turn, _)| *turn);
            self.resting_oldest = self.resting_oldest.into_iter().chain(first).min();
            self.resting.push(source);
        }
        if let Some(source) = open {
            self.add_source(source);
        }
    }

    fn add_source(&mut self, source: HeadSource<'a>) {
        self.sources.push(source);
        self.take_head(self.sources.len() - 1);
    }

    /// Makes the next head of a lane a candidate.
    fn take_head(&mut self, number: usize) {
        let Some(source) = self.sources.get_mut(number) else {
            return;
        };
        let (lane, room) = (source.lane, source.room);
        let Some((turn, group)) = source.heads.next() else {
            return;
        };
        let line = self.class.groups.get(group).and_then(|it| it.get(lane));
        let head = line.and_then(|line| Some((line, *line.get(turn)?)));
        let Some((line, id)) = head else {
            return;
        };
        let end = (self.now, u64::MAX);
        // The bounds of a range must differ if both exclude or include the same turn.
        let rest = if *turn < end {
            line.range((Bound::Excluded(*turn), Bound::Included(end)))
        } else {
            line.range(end..end)
        };
        let candidate = Candidate {
            id,
            flow: Flow(Some(group.clone())),
            rest,
            room,
            heads: Some(number),
        };
        self.add(*turn, candidate);
    }

    fn add(&mut self, turn: Turn, candidate: Candidate<'a>) {
        self.candidates.push(candidate);
        self.next.push(Reverse((turn, self.candidates.len() - 1)));
    }

    fn is_resting(&self, flow: &Flow) -> bool {
        self.rests.contains(flow) || (self.is_first_round && self.class.round.is_resting(flow))
    }

    fn take_turn(&mut self, flow: &Flow) {
        let before = match self.used.get(flow) {
            Some(used) => *used,
            None if self.is_first_round => self.class.round.used(flow),
            None => 0,
        };
        let used = before.saturating_add(1);
        self.used.insert(flow.clone(), used);
        if used >= weight_of(self.weights, flow.0.as_ref()) {
            self.rests.insert(flow.clone());
        }
    }

    /// Begins the next round. Returns false if there is nothing left.
    fn begin_round(&mut self) -> bool {
        self.is_first_round = false;
        self.used.clear();
        self.rests.clear();
        self.next = std::mem::take(&mut self.later);
        self.resting_oldest = None;
        for source in std::mem::take(&mut self.resting) {
            self.add_source(source);
        }
        !self.next.is_empty()
    }

    /// The oldest task that is left.
    fn oldest(&self) -> Option<Turn> {
        let waiting = [&self.next, &self.later].map(|heap| heap.peek().map(|head| head.0.0));
        let waiting = waiting.into_iter().flatten();
        waiting.chain(self.resting_oldest).min()
    }

    /// The next task, with the age of the oldest task of the class: however young it is, the class is as urgent as its oldest task.
    pub(super) fn next(&mut self) -> Option<(Turn, TaskId)> {
        loop {
            let oldest = self.oldest();
            let Some(Reverse((turn, number))) = self.next.pop() else {
                if self.begin_round() {
                    continue;
                }
                return None;
            };
            let candidate = self.candidates.get_mut(number)?;
            let heads = candidate.heads.take();
            let (flow, room) = (candidate.flow.clone(), candidate.room);
            if let Some(heads) = heads {
                self.take_head(heads);
            }
            let has_room = self.rooms.get(room).is_some_and(|room| *room > 0);
            if !has_room {
                continue;
            }
            if self.is_resting(&flow) {
                self.later.push(Reverse((turn, number)));
                continue;
            }
            self.take_turn(&flow);
            if let Some(room) = self.rooms.get_mut(room) {
                *room -= 1;
            }
            let candidate = self.candidates.get_mut(number)?;
            let id = candidate.id;
            if let Some((turn, id)) = candidate.rest.next() {
                candidate.id = *id;
                self.next.push(Reverse((*turn, number)));
            }
            return Some((oldest.unwrap_or(turn), id));
        }
    }
}
