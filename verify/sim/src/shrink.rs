//! The smallest run that still fails.
//!
//! What a run is made of is taken away piece by piece, as long as what is left still breaks one of the same promises: whole kinds of
//! faults first, then single faults, then tasks and processes. A run that is changed goes another way from there on, so that this finds a
//! small failure, not the smallest.

use std::collections::BTreeSet;
use std::sync::Arc;

use qo_check::Promise;

use crate::faults::FaultKind;
use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::subject::Subject;

/// How many runs are tried at the most.
const RUNS_MAX: u32 = 250;

struct Shrinking<'a> {
    subject: &'a Arc<dyn Subject>,
    promises: BTreeSet<Promise>,
    runs: u32,
    best: Outcome,
}

/// Shrinks a run that failed. What comes back has failed, too, and has its trace.
pub fn shrink(failed: Outcome, subject: &Arc<dyn Subject>) -> Outcome {
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
    /// Tries a smaller plan, and keeps it if it still fails.
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

    /// Takes away ever smaller parts of the list of what strikes.
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
