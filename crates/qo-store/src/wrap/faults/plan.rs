//! Which faults are injected, where, and how often.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::kind::FaultKind;
use crate::wrap::operation::Operation;

/// How often one fault strikes, and whom.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    kind: FaultKind,
    rate: f64,
    operations: Option<BTreeSet<Operation>>,
    prefixes: Option<Vec<String>>,
}

impl FaultRule {
    /// Strikes this share of the requests that can suffer it: 0 is never, 1 is always.
    pub fn new(kind: FaultKind, rate: f64) -> Self {
        Self {
            kind,
            rate,
            operations: None,
            prefixes: None,
        }
    }

    /// Strikes these kinds of requests alone.
    #[must_use]
    pub fn on(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = Some(operations.into_iter().collect());
        self
    }

    /// Strikes keys alone that start with one of these. A batch of deletes is judged by its first key, a list by its
    /// prefix, a copy by its target.
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

/// What goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// Tried in order; the first that strikes wins.
    pub rules: Vec<FaultRule>,
    /// The fault of the n-th request, counted from 1 since the plan was given. It comes before the rules.
    pub script: BTreeMap<u64, FaultKind>,
    /// The longest that a [`FaultKind::LateApply`] waits.
    pub late_apply_max: Duration,
    /// How long [`FaultKind::Unavailable`] lasts.
    pub burst: Duration,
    /// How far back [`FaultKind::StaleList`] looks.
    pub stale_by: Duration,
    /// How long [`FaultKind::NonAtomicCondition`] waits between its check and its write.
    pub check_pause: Duration,
}

impl Default for FaultPlan {
    /// No faults, and for those that are added: late by up to 2 s, bursts of 500 ms, lists 1 s old, checks 5 ms early.
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

    /// Every request that can suffer this fault does.
    pub fn always(kind: FaultKind) -> Self {
        Self::none().with(FaultRule::new(kind, 1.0))
    }

    /// Also this rule.
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

    /// Also this fault, at the n-th request, counted from 1 since the plan was given.
    #[must_use]
    pub fn at(mut self, request: u64, kind: FaultKind) -> Self {
        self.script.insert(request, kind);
        self
    }

    /// Whether the plan can inject this fault at all.
    pub(super) fn includes(&self, kind: FaultKind) -> bool {
        self.rules.iter().any(|rule| rule.kind == kind)
            || self.script.values().any(|scripted| *scripted == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_strikes_only_where_it_may() {
        let rule = FaultRule::new(FaultKind::LostAnswer, 1.0)
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
