//! A schedule as it is shown.

use qo_core::schedule::{Run, Schedule, ScheduleSpec};
use qo_core::{DocumentName, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

/// How many of the next ticks are shown.
const UPCOMING: usize = 5;

/// A schedule, its next runs and its last ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleInfo {
    /// Its name.
    pub name: DocumentName,
    /// Its definition.
    pub spec: ScheduleSpec,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Its next run. `None` if it is paused or has none left.
    pub next: Option<Timestamp>,
    /// Its next runs.
    pub upcoming: Vec<Timestamp>,
    /// The last run.
    pub last: Option<Run>,
    /// The last runs, oldest first.
    pub recent: Vec<Run>,
    /// A tick that waits for earlier tasks to finish.
    pub buffered: Option<Timestamp>,
    /// How many runs there were.
    pub fired: u64,
    /// How many ticks were skipped because of an overlap.
    pub skipped: u64,
    /// How many ticks were missed, because no process was there for longer than the catch-up window.
    pub missed: u64,
}

impl ScheduleInfo {
    pub(super) fn of(name: DocumentName, schedule: Schedule, now: Timestamp) -> Self {
        // A stored definition that is invalid has no ticks.
        let ticks = schedule.spec.ticks().ok();
        let next = ticks.as_ref().and_then(|ticks| schedule.next_tick(ticks));
        // A tick that is due is still the next one; those after it lie in the future.
        let after = ticks.iter().flat_map(|ticks| {
            let from = next.map_or(now, |next| next.max(now));
            ticks.between(from, Timestamp::MAX, UPCOMING - 1)
        });
        let upcoming = match next {
            Some(next) => std::iter::once(next).chain(after).collect(),
            None => Vec::new(),
        };
        Self {
            name,
            created_at: schedule.created_at,
            paused_at: schedule.paused_at,
            next,
            upcoming,
            last: schedule.recent.last().cloned(),
            recent: schedule.recent,
            buffered: schedule.buffered,
            fired: schedule.fired,
            skipped: schedule.skipped,
            missed: schedule.missed,
            spec: schedule.spec,
        }
    }
}

/// What a backfill did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackfillReport {
    /// The tasks of the range, in the order of their ticks.
    pub tasks: Vec<TaskId>,
    /// How many of them an earlier backfill of the same range had submitted.
    pub existing: usize,
}
