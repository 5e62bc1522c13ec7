//! The verdict on a run: what explains expired leases, and what the checks find.

use std::time::Duration;

use qo_check::{Excuse, Promise};
use qo_core::Timestamp;

use super::{AFTERMATH, BROKER, RunOutcome, Stage, VACANCY, lock};
use crate::check::{self, Evidence, Tally};
use crate::faults::{FaultKind, Struck};
use crate::sched::panics;
use crate::sched::{BEGIN_MS, ProcessId, Stuck};

impl Stage {
    /// The disturbances that explain expired leases.
    fn excuses(&self, struck: &[Struck]) -> Vec<Excuse> {
        let state = lock(&self.state);
        let worker_of = |process: ProcessId| {
            let mut lives = state.lives.iter();
            let lived = lives.find(|lived| lived.process == process);
            // A disturbance of a broker disturbs every worker.
            lived
                .map(|lived| lived.worker.clone())
                .filter(|worker| worker != BROKER)
        };
        let mut excuses: Vec<Excuse> = struck
            .iter()
            .filter(|struck| !matches!(struck.kind, FaultKind::Crash))
            .map(|struck| {
                excuse(
                    worker_of(struck.process),
                    struck.at,
                    struck.until + AFTERMATH,
                )
            })
            .collect();
        for lived in &state.lives {
            if let Some(died) = lived.died {
                let is_broker = lived.worker == BROKER;
                let until = if is_broker { died + VACANCY } else { died };
                excuses.push(excuse(worker_of(lived.process), died, until));
            }
        }
        for (process, from, until) in self.journal.excuses() {
            let worker = worker_of(process);
            let aftermath = if worker.is_none() {
                VACANCY
            } else {
                Duration::ZERO
            };
            excuses.push(excuse(worker, from, until + aftermath));
        }
        excuses
    }

    pub(super) fn judge(&self, ended: Result<(), Stuck>) -> RunOutcome {
        let struck = self.trouble.struck();
        let excuses = self.excuses(&struck);
        let new_rounds = lock(&self.state).new_rounds.clone();
        let (mut found, recovery, requests, unreadable, lives, over_at) = {
            let state = lock(&self.state);
            (
                state.found.clone(),
                state.recovery,
                state.requests.clone(),
                state.unreadable.clone(),
                state.lives.clone(),
                state.over_at,
            )
        };
        for panic in panics::recorded() {
            found.add(Promise::Run, panic);
        }
        if let Some((epoch, newest)) = self.hub.outdated_response() {
            let text =
                format!("the leader of epoch {epoch} responded after the leader of epoch {newest}");
            found.add(Promise::OneAttempt, text);
        }
        let mut tally = Tally::default();
        let process_time = lives
            .iter()
            .map(|lived| lived.died.unwrap_or(over_at).saturating_sub(lived.born))
            .sum();
        if let Err(stuck) = ended {
            let text = format!("{stuck:?} after {:?}", self.scheduler.elapsed());
            found.add(Promise::Run, text);
        } else {
            let (more, counted) = check::check(&Evidence {
                plan: &self.plan,
                subject: self.subject.as_ref(),
                bucket: &self.bucket,
                calls: &self.journal.calls(),
                excuses: &excuses,
                unreadable: &unreadable,
                requests: &requests,
                process_time,
                new_rounds: &new_rounds,
                faults: struck.len() as u64 + self.trouble.requests_refused(),
            });
            found.0.extend(more.0);
            tally = counted;
        }
        RunOutcome {
            plan: self.plan.clone(),
            found,
            tally,
            deaths: lives.iter().filter(|lived| lived.died.is_some()).count() as u64,
            lasted: self.plan.trouble + recovery,
            recovery,
            requests,
            digest: self.bucket.digest(),
            struck,
            trace: self.scheduler.take_trace(),
        }
    }
}

/// A disturbance of a worker, or of every worker, between two times of a run.
pub(crate) fn excuse(worker: Option<String>, from: Duration, until: Duration) -> Excuse {
    // Whole milliseconds that lie within the time, so that rounding explains nothing more.
    let from_ms = u64::try_from(from.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
    let begin = Timestamp::from_millis(BEGIN_MS);
    Excuse {
        worker,
        from: begin.plus_millis(from_ms),
        until: begin.plus_millis(until_ms),
    }
}
