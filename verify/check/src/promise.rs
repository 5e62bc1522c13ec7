//! The promises, and the breaches that a check found.

use std::collections::BTreeSet;
use std::fmt;

/// A promise that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// An acknowledged submit is never lost.
    NothingLost,
    /// There is one task per id and per idempotency key.
    OneTask,
    /// At most one attempt is current, and only that one changes the outcome.
    OneAttempt,
    /// Tasks change only as the rules allow, and finished tasks only on request.
    Rules,
    /// Once faults stop, every task finishes.
    Ends,
    /// A fault or a handler's error explains every additional attempt.
    Explained,
    /// Tasks with one ordering key run one at a time, in submit order.
    Ordered,
    /// No limit is exceeded.
    Limited,
    /// Groups are served in turn.
    InTurn,
    /// The settings of a queue apply to its tasks.
    Settings,
    /// Requests stay within the budget.
    Budget,
    /// No unneeded object is left in the store.
    LeftOver,
    /// The run itself worked.
    Run,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingLost => "promise 1, no acknowledged submit is lost",
            Self::OneTask => "promise 2, one task per id and key",
            Self::OneAttempt => "promise 3, one current attempt",
            Self::Rules => "promise 4, tasks change by the rules",
            Self::Ends => "promise 5, every task finishes",
            Self::Explained => "promise 6, attempts are explained",
            Self::Ordered => "order per key",
            Self::Limited => "limits",
            Self::InTurn => "turns of groups",
            Self::Settings => "queue settings",
            Self::Budget => "promise 7, the request budget",
            Self::LeftOver => "no object is left over",
            Self::Run => "the run works",
        })
    }
}

/// Broken promises, each with a description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Breaches(pub Vec<(Promise, String)>);

impl Breaches {
    /// Adds a breach.
    pub fn add(&mut self, promise: Promise, description: String) {
        self.0.push((promise, description));
    }

    /// Whether every promise was kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The promises that were broken.
    pub fn promises(&self) -> BTreeSet<Promise> {
        self.0.iter().map(|(promise, _)| *promise).collect()
    }
}

impl fmt::Display for Breaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (promise, description) in &self.0 {
            writeln!(f, "  {promise}: {description}")?;
        }
        Ok(())
    }
}
