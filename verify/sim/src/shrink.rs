//! Shrinks a failing run.
//!
//! Removes parts of a run as long as the rest breaks one of the same promises: first kinds of faults, then single faults, then tasks and
//! processes. A changed run takes another course, so this finds a small failure, not the smallest.

use std::collections::BTreeSet;
use std::sync::Arc;

use qo_check::Promise;

use crate::faults::FaultKind;
use crate::plan::Plan;
use crate::run::{RunOutcome, run};
use crate::subject::Subject;

/// The most runs to try.
const RUNS_MAX: u32 = 250;

struct Shrinking<'a> {
    subject: &'a Arc<dyn Subject>,
    promises: BTreeSet<Promise>,
    runs: u32,
    best: RunOutcome,
}

/// Shrinks a failed run. The returned run has failed as well, and has a trace.
pub fn shrink(failed: RunOutcome, subject: &Arc<dyn Subject>) -> RunOutcome {
    let mut shrinking = Shrinking {
        subject,
        promises: failed.found.promises(),
        runs: 0,
        best: failed,
    };
    shrinking.drop_kinds();
    shrinking.drop_single_faults();
    shrinking.drop_processes();
    shrinking.drop_single_faults();
    let plan = shrinking.best.plan.clone();
    run(&plan, Arc::clone(subject), true)
}

impl Shrinking<'_> {
    /// Runs a smaller plan, and keeps it if it fails.
    fn attempt(&mut self, plan: &Plan) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let outcome = run(plan, Arc::clone(self.subject), false);
        let fails = !outcome.found.promises().is_disjoint(&self.promises);
        if fails {
            self.best = outcome;
        }
        fails
    }

    fn drop_kinds(&mut self) {
        let kinds: Vec<FaultKind> = self.best.plan.faults.keys().copied().collect();
        for kind in kinds {
            let mut plan = self.best.plan.clone();
            plan.faults.remove(&kind);
            self.attempt(&plan);
        }
    }

    /// Removes ever smaller parts of the list of faults.
    fn drop_single_faults(&mut self) {
        let mut kept: Vec<String> = self.best.struck.iter().map(|one| one.id.clone()).collect();
        let mut plan = self.best.plan.clone();
        plan.only = Some(kept.iter().cloned().collect());
        if !self.attempt(&plan) {
            return;
        }
        let mut part = kept.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < kept.len() {
                let mut fewer = kept.clone();
                fewer.drain(from..(from + part).min(kept.len()));
                let mut plan = self.best.plan.clone();
                plan.only = Some(fewer.iter().cloned().collect());
                if self.attempt(&plan) {
                    kept = fewer;
                } else {
                    from += part;
                }
            }
            if part == 1 || self.runs >= RUNS_MAX {
                return;
            }
            part = part.div_ceil(2);
        }
    }

    fn drop_processes(&mut self) {
        let smaller: [fn(&mut Plan); 4] = [
            |plan| plan.tasks = plan.tasks.div_ceil(2),
            |plan| plan.tasks = plan.tasks.saturating_sub(1).max(1),
            |plan| plan.clients = 1,
            |plan| plan.workers = plan.workers.saturating_sub(1).max(1),
        ];
        for change in smaller {
            loop {
                let mut plan = self.best.plan.clone();
                change(&mut plan);
                if plan == self.best.plan || !self.attempt(&plan) {
                    break;
                }
            }
        }
    }
}
