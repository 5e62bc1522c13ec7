//! Decides which runs are due, and what happens on an overlap. The functions are pure: the caller reads the record and the status of tasks, and
//! makes the decision durable.

use super::record::{OPEN_MAX, RECENT_MAX, Run, RunKind, Schedule};
use super::spec::Overlap;
use super::ticks::Ticks;
use crate::id::TaskId;
use crate::names::DocumentName;
use crate::time::Timestamp;

/// The most ticks of one decision. More are decided in the next one.
pub const TICKS_MAX: usize = 50;
/// How many missed ticks are counted, at most.
const MISSED_MAX: usize = 1_000;
/// After how long the runs of a decision are submitted again, because the process that decided may have died.
pub const REPEAT_AFTER_MS: u64 = 30_000;

/// The ticks that are to be decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// They are due and within the catch-up window.
    pub ticks: Vec<Timestamp>,
    /// How many are older than that.
    pub missed: u64,
    /// Up to when everything is decided with them.
    pub through: Option<Timestamp>,
    /// The first tick after that.
    pub next: Option<Timestamp>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    /// The record that names the runs.
    pub firing: Schedule,
    /// The record once their tasks are submitted.
    pub settled: Schedule,
    /// The runs.
    pub runs: Vec<Run>,
    /// Tasks to cancel first.
    pub cancel: Vec<TaskId>,
}

impl Schedule {
    /// The ticks that are to be decided at `now`.
    pub fn due(&self, ticks: &Ticks, now: Timestamp) -> Due {
        // What an earlier decision left is submitted first, so that the record stays small.
        if self.paused_at.is_some() || self.firing.len() >= TICKS_MAX {
            return Due::default();
        }
        let window_start = now.minus_millis(self.spec.catch_up_ms);
        let (mut missed, mut after) = (0, self.through);
        if after < window_start {
            missed = ticks.between(after, window_start, MISSED_MAX).len() as u64;
            after = window_start;
        }
        let due = ticks.between(after, now, TICKS_MAX);
        let through = match due.last() {
            Some(last) => Some(*last),
            None if missed > 0 => Some(after),
            None => None,
        };
        Due {
            ticks: due,
            missed,
            next: through.and_then(|through| ticks.after(through)),
            through,
        }
    }

    /// The tasks whose status the decision needs: those that may be unfinished.
    pub fn asks_for(&self, due: &Due) -> &[TaskId] {
        let needs = self.spec.overlap != Overlap::Allow
            && (!due.ticks.is_empty() || self.buffered.is_some());
        if needs { &self.open } else { &[] }
    }

    /// Whether the runs of an earlier decision must be submitted again. `written_at` is when the record was written.
    pub fn must_repeat(&self, written_at: Timestamp, now: Timestamp) -> bool {
        !self.firing.is_empty() && written_at.plus_millis(REPEAT_AFTER_MS) <= now
    }

    /// Decides on due ticks. `alive` are those of [`Schedule::asks_for`] that are unfinished. `None` if there is nothing to write.
    pub fn decide(
        &self,
        name: &DocumentName,
        due: &Due,
        alive: &[TaskId],
        driver: &str,
        now: Timestamp,
    ) -> Option<Firing> {
        let mut next = self.clone();
        let mut fire = Vec::new();
        let mut cancel = Vec::new();
        let mut is_alive = !alive.is_empty();
        if let Some(tick) = next.buffered
            && !is_alive
        {
            fire.push(tick);
            next.buffered = None;
            is_alive = true;
        }
        match self.spec.overlap {
            Overlap::Allow => fire.extend(&due.ticks),
            Overlap::CancelRunning => {
                // Of several ticks, all but the last would be cancelled at once.
                if let Some((last, earlier)) = due.ticks.split_last() {
                    cancel.extend(alive);
                    next.skipped += earlier.len() as u64;
                    fire.push(*last);
                }
            }
            Overlap::Skip | Overlap::BufferOne => {
                for tick in &due.ticks {
                    if !is_alive {
                        fire.push(*tick);
                        is_alive = true;
                    } else if self.spec.overlap == Overlap::BufferOne && next.buffered.is_none() {
                        next.buffered = Some(*tick);
                    } else {
                        next.skipped += 1;
                    }
                }
            }
        }
        if due.through.is_none() && fire.is_empty() {
            return None;
        }
        if let Some(through) = due.through {
            next.through = through.max(next.through);
            next.next = due.next;
        }
        next.missed += due.missed;
        next.driver = Some(driver.to_owned());
        if self.spec.overlap != Overlap::Allow && !self.asks_for(due).is_empty() {
            next.open.retain(|task| alive.contains(task));
        }
        let runs = fire
            .into_iter()
            .map(|tick| self.run(name, RunKind::Tick, tick, now));
        Some(next.with_runs(&runs.collect::<Vec<_>>(), cancel))
    }

    /// Adds a run that somebody triggers.
    #[must_use]
    pub fn trigger(&self, run: Run) -> Firing {
        self.clone().with_runs(&[run], Vec::new())
    }

    /// Submits the runs of an earlier decision again.
    #[must_use]
    pub fn repeat(&self) -> Firing {
        let settled = Self {
            firing: Vec::new(),
            ..self.clone()
        };
        Firing {
            firing: self.clone(),
            settled,
            runs: self.firing.clone(),
            cancel: Vec::new(),
        }
    }

    fn with_runs(mut self, runs: &[Run], cancel: Vec<TaskId>) -> Firing {
        self.fired = self.fired.saturating_add(runs.len() as u64);
        // What an earlier decision left is submitted again together with the new runs.
        let all: Vec<Run> = std::mem::take(&mut self.firing)
            .into_iter()
            .chain(runs.iter().cloned())
            .collect();
        self.recent.extend(runs.iter().cloned());
        let excess = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..excess);
        if self.spec.overlap == Overlap::Allow {
            self.open.clear();
        } else {
            self.open.extend(runs.iter().map(|run| run.task));
            let excess = self.open.len().saturating_sub(OPEN_MAX);
            self.open.drain(..excess);
        }
        let firing = Self {
            firing: all.clone(),
            ..self.clone()
        };
        Firing {
            firing,
            settled: self,
            runs: all,
            cancel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{ScheduleSpec, TaskTemplate};
    use super::*;
    use crate::id::OpId;

    const SECOND: u64 = 1_000;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(1_763_238_000_000).plus_millis(second * SECOND)
    }

    fn name() -> DocumentName {
        "nightly".parse().unwrap()
    }

    /// Every ten seconds, from second 0 on.
    fn schedule(overlap: Overlap) -> (Schedule, Ticks) {
        let template = TaskTemplate::new("report".parse().unwrap());
        let mut spec = ScheduleSpec::every_ms(10 * SECOND, template);
        spec.overlap = overlap;
        spec.catch_up_ms = 60 * SECOND;
        let ticks = spec.ticks().unwrap();
        let schedule = Schedule::new(spec, OpId::from_random(1), at(0)).unwrap();
        (schedule, ticks)
    }

    fn decide(schedule: &Schedule, ticks: &Ticks, alive: bool, second: u64) -> Option<Firing> {
        let due = schedule.due(ticks, at(second));
        let open = schedule.asks_for(&due).to_vec();
        let alive = if alive { open } else { Vec::new() };
        schedule.decide(&name(), &due, &alive, "p1", at(second))
    }

    fn ticks_of(firing: &Firing) -> Vec<u64> {
        let of = |run: &Run| run.tick.since(at(0)).as_secs();
        firing.runs.iter().map(of).collect()
    }

    #[test]
    fn each_tick_is_decided_once_and_in_order() {
        let (mut schedule, ticks) = schedule(Overlap::Allow);
        assert_eq!(decide(&schedule, &ticks, false, 9), None);
        let mut fired = Vec::new();
        for second in [10, 10, 11, 35, 40, 41] {
            if let Some(firing) = decide(&schedule, &ticks, false, second) {
                fired.extend(ticks_of(&firing));
                schedule = firing.settled;
            }
        }
        assert_eq!(fired, [10, 20, 30, 40]);
        assert_eq!(schedule.fired, 4);
        assert_eq!(schedule.next_tick(&ticks), Some(at(50)));
    }

    #[test]
    fn a_decision_that_was_not_settled_is_submitted_again_under_the_same_ids() {
        let (schedule, ticks) = schedule(Overlap::Allow);
        let first = decide(&schedule, &ticks, false, 10).unwrap();
        let left = first.firing;
        assert!(!left.must_repeat(at(10), at(39)));
        assert!(left.must_repeat(at(10), at(40)));
        assert_eq!(left.repeat().runs, first.runs);
        assert_eq!(left.repeat().settled, first.settled);
        // The next decision takes the runs over.
        let next = decide(&left, &ticks, false, 20).unwrap();
        assert_eq!(ticks_of(&next), [10, 20]);
        assert_eq!(next.settled.fired, 2);
        assert!(next.settled.firing.is_empty());
    }

    #[test]
    fn an_outage_longer_than_the_window_loses_the_older_ticks_and_counts_them() {
        let (schedule, ticks) = schedule(Overlap::Allow);
        let firing = decide(&schedule, &ticks, false, 105).unwrap();
        assert_eq!(ticks_of(&firing), [50, 60, 70, 80, 90, 100]);
        assert_eq!(firing.settled.missed, 4);
        // A schedule that only missed ticks writes that down once.
        let mut late = schedule.clone();
        late.spec.end = Some(at(30));
        let late_ticks = late.spec.ticks().unwrap();
        let firing = decide(&late, &late_ticks, false, 1_000).unwrap();
        assert!(firing.runs.is_empty());
        assert_eq!(firing.settled.missed, 3);
        assert_eq!(decide(&firing.settled, &late_ticks, false, 2_000), None);
    }

    #[test]
    fn one_decision_is_bounded() {
        let (mut schedule, ticks) = schedule(Overlap::Allow);
        schedule.spec.catch_up_ms = 1_000_000 * SECOND;
        let firing = decide(&schedule, &ticks, false, 10_000).unwrap();
        assert_eq!(firing.runs.len(), TICKS_MAX);
        let next = decide(&firing.settled, &ticks, false, 10_000).unwrap();
        assert_eq!(ticks_of(&next)[0], 510);
        assert!(next.settled.recent.len() <= RECENT_MAX);
    }

    #[test]
    fn skip_fires_only_while_nothing_runs() {
        let (schedule, ticks) = schedule(Overlap::Skip);
        let first = decide(&schedule, &ticks, false, 10).unwrap().settled;
        let second = decide(&first, &ticks, true, 20).unwrap();
        assert!(second.runs.is_empty());
        assert_eq!(second.settled.skipped, 1);
        assert_eq!(second.settled.open, first.open);
        let third = decide(&second.settled, &ticks, false, 30).unwrap();
        assert_eq!(ticks_of(&third), [30]);
        assert_eq!(third.settled.open.len(), 1);
        // Of several due ticks, the first one fires.
        let many = decide(&schedule, &ticks, false, 45).unwrap();
        assert_eq!((ticks_of(&many), many.settled.skipped), (vec![10], 3));
    }

    #[test]
    fn buffer_one_keeps_one_tick_until_nothing_runs() {
        let (schedule, ticks) = schedule(Overlap::BufferOne);
        let first = decide(&schedule, &ticks, false, 10).unwrap().settled;
        let second = decide(&first, &ticks, true, 20).unwrap().settled;
        assert_eq!(second.buffered, Some(at(20)));
        let third = decide(&second, &ticks, true, 30).unwrap().settled;
        assert_eq!((third.buffered, third.skipped), (Some(at(20)), 1));
        assert_eq!(decide(&third, &ticks, true, 33), None);
        let fourth = decide(&third, &ticks, false, 34).unwrap();
        assert_eq!(ticks_of(&fourth), [20]);
        assert_eq!(fourth.settled.buffered, None);
        assert_eq!(fourth.settled.through, at(30));
    }

    #[test]
    fn cancel_running_cancels_what_runs_and_fires_the_last_tick() {
        let (schedule, ticks) = schedule(Overlap::CancelRunning);
        let first = decide(&schedule, &ticks, false, 10).unwrap();
        assert!(first.cancel.is_empty());
        let second = decide(&first.settled, &ticks, true, 35).unwrap();
        assert_eq!(second.cancel, first.settled.open);
        assert_eq!((ticks_of(&second), second.settled.skipped), (vec![30], 1));
    }

    #[test]
    fn a_paused_schedule_decides_nothing_and_leaves_its_pause_out() {
        let (schedule, ticks) = schedule(Overlap::Allow);
        let paused = schedule.pause(at(5));
        assert_eq!(decide(&paused, &ticks, false, 100), None);
        assert_eq!(paused.next_tick(&ticks), None);
        let resumed = paused.pause(at(50)).resume(at(95));
        assert_eq!(decide(&resumed, &ticks, false, 99), None);
        assert_eq!(
            ticks_of(&decide(&resumed, &ticks, false, 100).unwrap()),
            [100]
        );
    }

    #[test]
    fn a_changed_definition_starts_from_now() {
        let (schedule, _) = schedule(Overlap::BufferOne);
        let mut spec = schedule.spec.clone();
        spec.every_ms = Some(SECOND);
        let changed = schedule.with_spec(spec, at(60)).unwrap();
        let ticks = changed.spec.ticks().unwrap();
        assert_eq!(changed.generation, schedule.generation);
        assert_eq!(
            ticks_of(&decide(&changed, &ticks, false, 61).unwrap()),
            [61]
        );
        let mut over = schedule.spec.clone();
        over.end = Some(at(50));
        assert!(schedule.with_spec(over, at(60)).is_err());
    }

    #[test]
    fn a_trigger_is_one_more_run_and_counts_as_running() {
        let (schedule, ticks) = schedule(Overlap::Skip);
        let run = schedule.triggered(&name(), OpId::from_random(9), at(5));
        let triggered = schedule.trigger(run.clone());
        assert_eq!(triggered.runs, [run]);
        let skipped = decide(&triggered.settled, &ticks, true, 10).unwrap();
        assert_eq!(skipped.settled.skipped, 1);
    }
}
