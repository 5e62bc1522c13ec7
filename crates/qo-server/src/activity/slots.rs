//! Counts of one queue and type over the last hour, day and week.

use std::collections::BTreeMap;

use qo_core::Timestamp;
use qo_engine::{End, MeasurementKind};
use qo_remote::wire::activity::{ActivityChanges, LatencySummaries, Period};
use serde::{Deserialize, Serialize};

use super::latencies::Latencies;
use super::saved::changes_in;

/// What happened in one step of a period.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Slot {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) retried: u64,
    pub(super) wait: Latencies,
    pub(super) run: Latencies,
    pub(super) total: Latencies,
}

impl Slot {
    pub(super) fn changes(&self) -> ActivityChanges {
        ActivityChanges {
            submitted: self.submitted,
            completed: self.completed,
            failed: self.failed,
            cancelled: self.cancelled,
            retried: self.retried,
            latencies: self.latencies(),
        }
    }

    pub(super) fn latencies(&self) -> LatencySummaries {
        LatencySummaries {
            wait: self.wait.summary(),
            run: self.run.summary(),
            total: self.total.summary(),
        }
    }

    pub(super) fn count(&mut self, kind: MeasurementKind) {
        match kind {
            MeasurementKind::Submitted => self.submitted += 1,
            MeasurementKind::Claimed { wait } => self.wait.observe(wait),
            MeasurementKind::Ended { end, run, total } => {
                match end {
                    End::Completed => self.completed += 1,
                    End::Failed => self.failed += 1,
                    End::Cancelled => self.cancelled += 1,
                    End::Retried => self.retried += 1,
                    _ => {}
                }
                if let Some(run) = run {
                    self.run.observe(run);
                }
                if let Some(total) = total {
                    self.total.observe(total);
                }
            }
            _ => {}
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.retried += other.retried;
        self.wait.add(&other.wait);
        self.run.add(&other.run);
        self.total.add(&other.total);
    }
}

/// The steps of all periods. Steps in which nothing happened take no memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Slots {
    periods: [BTreeMap<u64, Slot>; Period::ALL.len()],
}

impl Slots {
    pub(super) fn is_empty(&self) -> bool {
        self.periods.iter().all(BTreeMap::is_empty)
    }

    /// The number of changes in all steps.
    pub(super) fn changes(&self) -> u64 {
        let slots = self.periods.iter().flat_map(BTreeMap::values);
        slots.map(changes_in).sum()
    }

    /// Adds what happened in the steps of another one.
    pub(super) fn add(&mut self, other: &Self) {
        let periods = Period::ALL.into_iter().zip(&mut self.periods);
        for ((period, slots), others) in periods.zip(&other.periods) {
            for (number, slot) in others {
                slots.entry(*number).or_default().add(slot);
            }
            while slots.len() > period.steps() {
                slots.pop_first();
            }
        }
    }

    pub(super) fn count(&mut self, kind: MeasurementKind, at: Timestamp) {
        for (period, slots) in Period::ALL.into_iter().zip(&mut self.periods) {
            slots.entry(number(period, at)).or_default().count(kind);
            while slots.len() > period.steps() {
                slots.pop_first();
            }
        }
    }

    /// The steps of a period that ends now.
    pub(super) fn steps(
        &self,
        period: Period,
        now: Timestamp,
    ) -> impl Iterator<Item = (u64, &Slot)> {
        let last = number(period, now);
        let first = first(period, now);
        let slots = Period::ALL.into_iter().zip(&self.periods);
        let of_period = slots.filter(move |(one, _)| *one == period);
        of_period.flat_map(move |(_, slots)| {
            // A clock that was ahead may have left a later step.
            slots
                .range(first..=last)
                .map(|(number, slot)| (*number, slot))
        })
    }
}

/// The number of the step that a time is in.
pub(super) fn number(period: Period, at: Timestamp) -> u64 {
    at.as_millis().unsigned_abs() / (period.step_seconds() * 1_000)
}

/// The number of the first step of a period that ends now.
pub(super) fn first(period: Period, now: Timestamp) -> u64 {
    (number(period, now) + 1).saturating_sub(period.steps() as u64)
}

/// When a step begins.
pub(super) fn begin(period: Period, number: u64) -> Timestamp {
    Timestamp::MIN.plus_millis(number.saturating_mul(period.step_seconds() * 1_000))
}
