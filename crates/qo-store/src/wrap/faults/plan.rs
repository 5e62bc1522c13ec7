//! Which faults to inject, into which requests, and how often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::kind::FaultKind;
use crate::wrap::operation::Operation;

/// The rate of a fault and the requests that it affects.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    kind: FaultKind,
    rate: f64,
    operations: Option<BTreeSet<Operation>>,
    prefixes: Option<Vec<String>>,
}

impl FaultRule {
    /// Affects this fraction of the eligible requests: 0 is never, 1 is always.
    pub fn new(kind: FaultKind, rate: f64) -> Self {
        Self {
            kind,
            rate,
            operations: None,
            prefixes: None,
        }
    }

    /// Affects only these kinds of requests.
    #[must_use]
    pub fn on(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = Some(operations.into_iter().collect());
        self
    }

    /// Affects only keys that start with one of these prefixes. A batch delete is matched by its first key, a
    /// list by its prefix, a copy by its target.
    #[must_use]
    pub fn under<P: Into<String>>(mut self, prefixes: impl IntoIterator<Item = P>) -> Self {
        self.prefixes = Some(prefixes.into_iter().map(Into::into).collect());
        self
    }

    pub(super) fn kind(&self) -> FaultKind {
        self.kind
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn matches(&self, operation: Operation, key: &str) -> bool {
        let operations = self.operations.as_ref();
        let prefixes = self.prefixes.as_ref();
        self.kind.applies_to(operation)
            && operations.is_none_or(|operations| operations.contains(&operation))
            && prefixes.is_none_or(|all| all.iter().any(|one| key.starts_with(one.as_str())))
    }
}

/// A plan of faults to inject.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// Rules, tried in order. The first that applies wins.
    pub rules: Vec<FaultRule>,
    /// The fault of the n-th request, counted from 1 since the plan was set. Takes precedence over the rules.
    pub script: BTreeMap<u64, FaultKind>,
    /// The maximum delay of [`FaultKind::LateApply`].
    pub late_apply_max: Duration,
    /// The duration of [`FaultKind::Unavailable`].
    pub burst: Duration,
    /// The age of a [`FaultKind::StaleList`].
    pub stale_by: Duration,
    /// The pause of [`FaultKind::NonAtomicCondition`] between check and write.
    pub check_pause: Duration,
}

impl Default for FaultPlan {
    /// No faults. Defaults for added ones: late by up to 2 s, bursts of 500 ms, lists 1 s old, 5 ms between check
    /// and write.
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            script: BTreeMap::new(),
            late_apply_max: Duration::from_secs(2),
            burst: Duration::from_millis(500),
            stale_by: Duration::from_secs(1),
            check_pause: Duration::from_millis(5),
        }
    }
}

impl FaultPlan {
    /// No faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Injects this fault into every eligible request.
    pub fn always(kind: FaultKind) -> Self {
        Self::none().with(FaultRule::new(kind, 1.0))
    }

    /// Adds a rule.
    #[must_use]
    pub fn with(mut self, rule: FaultRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds a rule for each of these kinds, all with the same rate.
    #[must_use]
    pub fn with_each(self, kinds: impl IntoIterator<Item = FaultKind>, rate: f64) -> Self {
        let rules = kinds.into_iter().map(|kind| FaultRule::new(kind, rate));
        rules.fold(self, Self::with)
    }

    /// Injects this fault into the n-th request, counted from 1 since the plan was set.
    #[must_use]
    pub fn at(mut self, request: u64, kind: FaultKind) -> Self {
        self.script.insert(request, kind);
        self
    }

    /// Whether the plan can inject this fault.
    pub(super) fn includes(&self, kind: FaultKind) -> bool {
        self.rules.iter().any(|rule| rule.kind == kind)
            || self.script.values().any(|scripted| *scripted == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_affects_only_matching_requests() {
        let rule = FaultRule::new(FaultKind::LostResponse, 1.0)
            .on([Operation::Swap])
            .under(["tasks/", "ready/"]);
        assert!(rule.matches(Operation::Swap, "tasks/a"));
        assert!(!rule.matches(Operation::Create, "tasks/a"));
        assert!(!rule.matches(Operation::Swap, "data/a"));
        let everywhere = FaultRule::new(FaultKind::TornRead, 1.0);
        assert!(everywhere.matches(Operation::Get, "any"));
        assert!(!everywhere.matches(Operation::Put, "any"));
    }
}
