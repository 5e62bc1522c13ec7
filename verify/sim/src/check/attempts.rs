//! Every attempt has one holder, and ends by itself only where something explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qo_core::TaskId;

use super::life::{Attempt, Life, Step};
use super::{Found, Promise};
use crate::journal::{Asked, Call, Told};
use crate::sched::BEGIN_MS;

/// What may explain that a worker did not do what it should: it was disturbed then.
#[derive(Debug, Clone, PartialEq)]
pub struct Excuse {
    /// Whose; everybody's, if there is no name.
    pub worker: Option<String>,
    /// From when.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

/// A claim may be on its way for so long before its attempt begins.
const CLAIM_TAKES: Duration = Duration::from_secs(45);

/// Checks who held which attempt.
pub(super) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    spoiled: &BTreeSet<TaskId>,
    excuses: &[Excuse],
    found: &mut Found,
) {
    let stored: BTreeSet<Attempt> = lives
        .values()
        .flat_map(|life| life.attempts.iter().copied())
        .collect();
    let mut held = BTreeSet::new();
    let mut handed_out = BTreeSet::new();
    for call in calls.iter().filter(|call| call.asked == Asked::Claim) {
        let (Some(task), Some(lease), Told::Done(Some(seen))) = (call.task, call.lease, &call.told)
        else {
            continue;
        };
        if spoiled.contains(&task) {
            continue;
        }
        let attempt = Attempt {
            task,
            number: seen.attempt,
            lease,
        };
        if !held.insert((task, seen.attempt)) {
            found.add(
                Promise::OneAttempt,
                format!("{attempt:?} was handed out twice"),
            );
        }
        if !stored.contains(&attempt) {
            found.add(
                Promise::OneAttempt,
                format!("{attempt:?} was handed out and is not stored"),
            );
        }
        handed_out.insert(attempt);
    }
    for (id, life) in lives {
        for change in life
            .changes
            .iter()
            .filter(|change| change.step == Step::LeaseExpiry)
        {
            let Some(before) = &change.before else {
                continue;
            };
            let worker = before
                .worker_id
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let claimed = before.started_at.map_or(Duration::ZERO, since_begin);
            let ended = since_begin(change.at);
            let from = claimed.saturating_sub(CLAIM_TAKES);
            let explained = excuses.iter().any(|excuse| {
                excuse.worker.as_ref().is_none_or(|name| *name == worker)
                    && excuse.from <= ended
                    && excuse.until >= from
            });
            if !explained {
                found.add(
                    Promise::Explained,
                    format!(
                        "task {id}: the lease of {worker}, attempt {}, ran out at {ended:?}, and nothing explains it",
                        before.attempt
                    ),
                );
            }
        }
    }
}

fn since_begin(at: qo_core::Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(at.as_millis() - BEGIN_MS).unwrap_or_default())
}
