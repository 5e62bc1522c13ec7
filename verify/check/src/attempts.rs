//! Every attempt has one holder, and its lease expires only where something explains it.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{TaskId, Timestamp};

use crate::call::{Call, CallKind, Reply};
use crate::life::{Attempt, Change, Conditions, Life, Step};
use crate::promise::{Breaches, Promise};

/// A disturbance that explains why a worker lost an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Excuse {
    /// The disturbed worker; every worker if there is none.
    pub worker: Option<String>,
    /// Its start.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
}

impl Excuse {
    /// Disturbs a worker, or every worker, all the time.
    pub fn always(worker: Option<&str>) -> Self {
        Self {
            worker: worker.map(str::to_owned),
            from: Timestamp::MIN,
            until: Timestamp::MAX,
        }
    }

    /// Whether this disturbed a worker at some time between the two.
    pub fn covers(&self, worker: &str, from: Timestamp, until: Timestamp) -> bool {
        self.worker.as_ref().is_none_or(|name| name == worker)
            && self.from <= until
            && self.until >= from
    }
}

/// The longest time from the start of a claim to the start of its attempt.
const CLAIM_MAX_MS: u64 = 45_000;

/// Checks the holders of all attempts.
pub(crate) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    excluded: &BTreeSet<TaskId>,
    excuses: &[Excuse],
    conditions: Conditions,
    breaches: &mut Breaches,
) {
    let stored: BTreeSet<Attempt> = lives
        .values()
        .flat_map(|life| life.attempts.iter().copied())
        .collect();
    let mut held = BTreeSet::new();
    let mut handed_out = BTreeSet::new();
    for call in calls.iter().filter(|call| call.kind == CallKind::Claim) {
        let (Some(task), Some(lease), Reply::Done(Some(view))) =
            (call.task, call.lease, &call.reply)
        else {
            continue;
        };
        if excluded.contains(&task) {
            continue;
        }
        let attempt = Attempt {
            task,
            number: view.attempt,
            lease,
        };
        if !held.insert((task, view.attempt)) {
            let text = format!("{attempt:?} was handed out twice");
            breaches.add(Promise::OneAttempt, text);
        }
        if !stored.contains(&attempt) {
            let text = format!("{attempt:?} was handed out and is not stored");
            breaches.add(Promise::OneAttempt, text);
        }
        handed_out.insert(attempt);
    }
    if conditions.claims_answered {
        for attempt in stored.difference(&handed_out) {
            let text = format!("{attempt:?} is stored and was never handed out");
            breaches.add(Promise::Explained, text);
        }
    }
    for (id, life) in lives {
        let expiries = life
            .changes
            .iter()
            .filter(|change| change.step == Step::LeaseExpiry);
        for change in expiries {
            check_expiry(*id, change, excuses, breaches);
        }
    }
}

fn check_expiry(id: TaskId, change: &Change, excuses: &[Excuse], breaches: &mut Breaches) {
    let Some(before) = &change.before else {
        return;
    };
    let worker = before
        .worker_id
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let claimed = before.started_at.unwrap_or(Timestamp::MIN);
    let from = claimed.minus_millis(CLAIM_MAX_MS);
    let is_explained = excuses
        .iter()
        .any(|excuse| excuse.covers(&worker, from, change.at));
    if !is_explained {
        breaches.add(
            Promise::Explained,
            format!(
                "task {id}: the lease of {worker}, attempt {}, expired at {} without an explanation",
                before.attempt, change.at
            ),
        );
    }
}
