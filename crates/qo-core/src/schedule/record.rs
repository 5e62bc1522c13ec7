//! The stored record of a schedule: the body of its document.

use serde::{Deserialize, Serialize};

use super::spec::{InvalidSchedule, ScheduleSpec};
use super::ticks::Ticks;
use crate::extra::Extra;
use crate::id::{OpId, TaskId};
use crate::mix::mix;
use crate::names::DocumentName;
use crate::route::Route;
use crate::time::Timestamp;

/// How many of the last runs a record keeps.
pub(super) const RECENT_MAX: usize = 10;
/// How many unfinished tasks a record knows of, for policies that ask for them.
pub(super) const OPEN_MAX: usize = 16;

/// The reader of schedules that this version is. It leaves a schedule whose `min_reader` is higher alone.
///
/// | reader | since |
/// | --- | --- |
/// | 1 | records without `min_reader` |
/// | 2 | ordering keys of tasks: an older version would submit the tasks without a key |
pub const SCHEDULE_READER: u64 = 2;
/// The lowest reader that may fire a schedule whose tasks have an ordering key.
const ORDERING_READER: u64 = 2;

/// A schedule, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The definition.
    pub spec: ScheduleSpec,
    /// The lowest [`SCHEDULE_READER`] that may fire or change the schedule; absent if any may. A field of the task that an older version
    /// would leave out raises it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_reader: u64,
    /// Identifies this creation of the schedule. It is part of the ids of its tasks, so a schedule that is removed and created again
    /// submits new tasks.
    pub generation: OpId,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// All ticks up to this time are decided. Later ones are not.
    pub through: Timestamp,
    /// The first tick after `through`, for readers that cannot compute it, such as the dashboard on a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// A tick that waits for earlier tasks to finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered: Option<Timestamp>,
    /// Runs that are decided and may not be submitted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firing: Vec<Run>,
    /// The last runs, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<Run>,
    /// Tasks that were unfinished when they were last looked at. Empty if the overlap policy does not ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<TaskId>,
    /// How many runs there were.
    #[serde(default)]
    pub fired: u64,
    /// How many ticks were skipped because of an overlap.
    #[serde(default)]
    pub skipped: u64,
    /// How many ticks were missed, because all processes were down for longer than the catch-up window.
    #[serde(default)]
    pub missed: u64,
    /// The process that decided last. It continues, and others wait a little, so that they do not race for each tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One run of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The time that it is for.
    pub tick: Timestamp,
    /// Why there is one.
    #[serde(default, skip_serializing_if = "RunKind::is_tick")]
    pub kind: RunKind,
    /// Its task.
    pub task: TaskId,
    /// When it was decided.
    pub at: Timestamp,
}

/// Why there is a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The time had come.
    #[default]
    Tick,
    /// Somebody triggered it.
    Trigger,
    /// Somebody asked for a past range.
    Backfill,
}

impl RunKind {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_tick(&self) -> bool {
        *self == Self::Tick
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Trigger => "trigger",
            Self::Backfill => "backfill",
        }
    }
}

impl Schedule {
    /// A new schedule. Its first tick is after `now`.
    pub fn new(
        spec: ScheduleSpec,
        generation: OpId,
        now: Timestamp,
    ) -> Result<Self, InvalidSchedule> {
        let next = first_tick(&spec, now)?;
        Ok(Self {
            min_reader: min_reader(&spec),
            spec,
            generation,
            created_at: now,
            paused_at: None,
            through: now,
            next: Some(next),
            buffered: None,
            firing: Vec::new(),
            recent: Vec::new(),
            open: Vec::new(),
            fired: 0,
            skipped: 0,
            missed: 0,
            driver: None,
            extra: Extra::NONE,
        })
    }

    /// The schedule with another definition, whose first tick is after `now`.
    pub fn with_spec(&self, spec: ScheduleSpec, now: Timestamp) -> Result<Self, InvalidSchedule> {
        let through = self.through.max(now);
        let next = first_tick(&spec, through)?;
        Ok(Self {
            min_reader: min_reader(&spec),
            spec,
            through,
            next: Some(next),
            buffered: None,
            ..self.clone()
        })
    }

    /// The schedule without further ticks until it is resumed.
    #[must_use]
    pub fn pause(&self, now: Timestamp) -> Self {
        Self {
            paused_at: self.paused_at.or(Some(now)),
            buffered: None,
            ..self.clone()
        }
    }

    /// The schedule with the ticks from now on. Those of the pause are left out.
    #[must_use]
    pub fn resume(&self, now: Timestamp) -> Self {
        let through = self.through.max(now);
        Self {
            paused_at: None,
            through,
            next: first_tick(&self.spec, through).ok(),
            ..self.clone()
        }
    }

    /// The next tick, if it is not paused.
    pub fn next_tick(&self, ticks: &Ticks) -> Option<Timestamp> {
        match self.paused_at {
            Some(_) => None,
            None => ticks.after(self.through),
        }
    }

    /// The run of a tick.
    pub fn run(&self, name: &DocumentName, kind: RunKind, tick: Timestamp, now: Timestamp) -> Run {
        Run {
            tick,
            kind,
            task: task_id(name, self.generation, kind, tick, 0),
            at: now,
        }
    }

    /// A run that somebody triggers. `op` makes it a new one.
    pub fn triggered(&self, name: &DocumentName, op: OpId, now: Timestamp) -> Run {
        let (high, low) = op.as_uuid().as_u64_pair();
        Run {
            task: task_id(name, self.generation, RunKind::Trigger, now, high ^ low),
            ..self.run(name, RunKind::Trigger, now, now)
        }
    }

    /// When the task of a run becomes due: at its tick, and later by the jitter that follows from its id.
    pub fn due_at(&self, run: &Run) -> Timestamp {
        if self.spec.jitter_ms == 0 || run.kind == RunKind::Trigger {
            return run.tick;
        }
        let (high, low) = run.task.as_uuid().as_u64_pair();
        let jitter_ms = mix(high ^ low) % self.spec.jitter_ms.saturating_add(1);
        run.tick.plus_millis(jitter_ms)
    }
}

/// The lowest reader that submits all that the definition says.
fn min_reader(spec: &ScheduleSpec) -> u64 {
    match spec.task.ordering_key {
        Some(_) => ORDERING_READER,
        None => 0,
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The first tick. Refuses a definition that is invalid, or that has no tick any more.
fn first_tick(spec: &ScheduleSpec, now: Timestamp) -> Result<Timestamp, InvalidSchedule> {
    spec.ticks()?.after(now).ok_or(InvalidSchedule::NeverFires)
}

/// The id of the task of a run. It sorts by the time of the tick, like the ids of other tasks, and has the route of documents, so that a
/// partitioned queue finds it where the schedule is.
fn task_id(
    name: &DocumentName,
    generation: OpId,
    kind: RunKind,
    tick: Timestamp,
    salt: u64,
) -> TaskId {
    let (high, low) = generation.as_uuid().as_u64_pair();
    let mut seed = mix(mix(high) ^ low);
    for byte in name.as_str().bytes() {
        seed = mix(seed ^ u64::from(byte));
    }
    seed = mix(seed ^ tick.as_millis().unsigned_abs()) ^ mix(salt);
    seed = mix(seed ^ (kind as u64));
    let random = (u128::from(mix(seed)) << 64) | u128::from(mix(seed ^ high));
    TaskId::from_time(tick, random).with_route(Route::DOCUMENTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::spec::TaskTemplate;
    use super::*;

    fn schedule(generation: u128) -> Schedule {
        let template = TaskTemplate::new("report".parse().unwrap());
        let spec = ScheduleSpec::every_ms(1_000, template);
        let now = Timestamp::from_millis(1_763_238_840_123);
        Schedule::new(spec, OpId::from_random(generation), now).unwrap()
    }

    fn name(text: &str) -> DocumentName {
        text.parse().unwrap()
    }

    #[test]
    fn the_id_of_a_task_follows_from_name_generation_and_tick() {
        let now = Timestamp::from_millis(9);
        let at = |millis: i64| Timestamp::from_millis(1_763_238_840_000 + millis);
        let run = |number, text: &str, tick| {
            schedule(number)
                .run(&name(text), RunKind::Tick, tick, now)
                .task
        };
        assert_eq!(run(1, "a", at(0)), run(1, "a", at(0)));
        let mut ids = BTreeSet::new();
        let mut shards = BTreeSet::new();
        for generation in 1..20 {
            for text in ["a", "b"] {
                for tick in 0..50 {
                    let id = run(generation, text, at(tick));
                    assert_eq!(id.route(), Route::DOCUMENTS);
                    assert!(ids.insert(id), "{generation} {text} {tick}");
                    shards.insert(id.shard());
                }
            }
        }
        assert_eq!(shards.len(), 16);
        let one = schedule(1);
        let backfill = one.run(&name("a"), RunKind::Backfill, at(0), now).task;
        assert!(!ids.contains(&backfill));
        let first = one.triggered(&name("a"), OpId::from_random(1), at(0));
        let second = one.triggered(&name("a"), OpId::from_random(2), at(0));
        assert_ne!(first.task, second.task);
    }

    /// Stored schedules rely on these values: a change of them would fire ticks twice during an update.
    #[test]
    fn ids_never_change() {
        let tick = Timestamp::from_millis(1_763_238_840_000);
        let run = schedule(7).run(&name("nightly"), RunKind::Tick, tick, tick);
        assert_eq!(run.task.to_string(), EXPECTED);
    }

    const EXPECTED: &str = "e19a8939-86c0-8a46-becb-fecdcabe9ae0";

    #[test]
    fn jitter_is_bounded_and_follows_from_the_id() {
        let mut schedule = schedule(1);
        schedule.spec.jitter_ms = 5_000;
        let mut seen = BTreeSet::new();
        for second in 0..200 {
            let tick = Timestamp::from_millis(1_763_238_840_000 + second * 1_000);
            let run = schedule.run(&name("a"), RunKind::Tick, tick, tick);
            let late = schedule.due_at(&run).since(tick).as_millis();
            assert!(late <= 5_000);
            assert_eq!(schedule.due_at(&run), schedule.due_at(&run));
            seen.insert(late / 1_000);
        }
        assert!(seen.len() >= 5, "{seen:?}");
    }

    #[test]
    fn the_lowest_reader_follows_from_the_definition() {
        let plain = schedule(1);
        let value = serde_json::to_value(&plain).unwrap();
        assert_eq!(value.get("min_reader"), None);
        let mut spec = plain.spec.clone();
        spec.task.ordering_key = Some("account-17".parse().unwrap());
        let ordered = plain.with_spec(spec.clone(), plain.through).unwrap();
        assert_eq!(serde_json::to_value(&ordered).unwrap()["min_reader"], 2);
        let new = Schedule::new(spec, plain.generation, plain.through).unwrap();
        assert_eq!(new.min_reader, 2);
        let again = ordered.with_spec(plain.spec.clone(), plain.through);
        assert_eq!(again.unwrap().min_reader, 0);
    }

    #[test]
    fn a_record_round_trips_with_fields_of_later_versions() {
        let mut schedule = schedule(1);
        schedule.recent.push(schedule.triggered(
            &name("a"),
            OpId::from_random(3),
            schedule.through,
        ));
        let mut value = serde_json::to_value(&schedule).unwrap();
        value["later"] = 1.into();
        value["spec"]["later"] = 2.into();
        let read: Schedule = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
    }
}
