//! Decides which request gets which fault, and records the decisions.
//!
//! Decisions use one seeded generator under one lock, in the order in which requests arrive. The same seed and order
//! therefore give the same faults. Only a burst also depends on the runtime's time.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::kind::FaultKind;
use super::plan::FaultPlan;
use crate::wrap::operation::Operation;

/// The size of the log. Later faults are only counted.
const LOG_MAX: usize = 10_000;

/// An injected fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFault {
    /// The request number, counted from 1 since the plan was set.
    pub request: u64,
    /// The kind of request.
    pub operation: Operation,
    /// The key or prefix of the request.
    pub key: String,
    /// The fault.
    pub kind: FaultKind,
}

/// A chosen fault, with a random number in `0..1` for its length or delay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) fraction: f64,
}

#[derive(Debug)]
pub(super) struct FaultState {
    random: StdRng,
    plan: FaultPlan,
    requests: u64,
    burst_until: Option<Duration>,
    crashed: bool,
    log: Vec<InjectedFault>,
    injected: BTreeMap<FaultKind, u64>,
}

impl FaultState {
    pub(super) fn new(plan: FaultPlan, seed: u64) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            plan,
            requests: 0,
            burst_until: None,
            crashed: false,
            log: Vec::new(),
            injected: BTreeMap::new(),
        }
    }

    /// Decides the fault of the next request, which arrives at `now`.
    pub(super) fn decide(
        &mut self,
        operation: Operation,
        key: &str,
        now: Duration,
    ) -> Option<Fault> {
        self.requests += 1;
        let kind = self.choose(operation, key, now)?;
        match kind {
            FaultKind::Crash => self.crashed = true,
            FaultKind::Unavailable if self.burst_until.is_none() => {
                self.burst_until = Some(now.saturating_add(self.plan.burst));
            }
            _ => {}
        }
        *self.injected.entry(kind).or_default() += 1;
        if self.log.len() < LOG_MAX {
            self.log.push(InjectedFault {
                request: self.requests,
                operation,
                key: key.to_owned(),
                kind,
            });
        }
        Some(Fault {
            kind,
            fraction: self.random.random::<f64>(),
        })
    }

    fn choose(&mut self, operation: Operation, key: &str, now: Duration) -> Option<FaultKind> {
        if self.crashed {
            return Some(FaultKind::Crash);
        }
        if self.burst_until.is_some_and(|until| now < until) {
            return Some(FaultKind::Unavailable);
        }
        self.burst_until = None;
        let scripted = self.plan.script.get(&self.requests).copied();
        if let Some(kind) = scripted.filter(|kind| kind.applies_to(operation)) {
            return Some(kind);
        }
        let random = &mut self.random;
        let mut rules = self.plan.rules.iter();
        rules
            .find(|rule| rule.matches(operation, key) && random.random::<f64>() < rule.rate())
            .map(super::plan::FaultRule::kind)
    }

    pub(super) fn set_plan(&mut self, plan: FaultPlan) {
        self.plan = plan;
        self.requests = 0;
        self.burst_until = None;
    }

    pub(super) fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn is_crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn set_crashed(&mut self, crashed: bool) {
        self.crashed = crashed;
    }

    pub(super) fn log(&self) -> &[InjectedFault] {
        &self.log
    }

    pub(super) fn injected(&self) -> &BTreeMap<FaultKind, u64> {
        &self.injected
    }
}
