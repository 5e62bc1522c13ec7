//! All checks of calls against stored versions.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{DocumentName, Limit, QueueSettings, TaskId, WebhookRules};

use crate::attempts::{self, Excuse};
use crate::call::{Call, CallKind};
use crate::fairness::TurnBound;
use crate::life::{self, Conditions, Life, StoredVersion};
use crate::promise::{Breaches, Promise};
use crate::{
    amendments, counts, fairness, keys, limits, linearizability, ordering, settings, webhooks,
};

/// A recorded history, after all faults stopped and the queue settled.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// Every stored version of every task, oldest first.
    pub versions: &'a BTreeMap<TaskId, Vec<StoredVersion>>,
    /// The calls.
    pub calls: &'a [Call],
    /// The disturbances that explain expired leases.
    pub excuses: &'a [Excuse],
    /// Tasks whose stored objects were damaged. They are exempt.
    pub damaged: &'a BTreeSet<TaskId>,
    /// Tasks whose payloads could not be read in the end, with the error.
    pub unreadable: &'a [(TaskId, String)],
    /// The limits, which were set before the first claim and did not change.
    pub limits: &'a [(DocumentName, Limit)],
    /// The webhooks, which were defined before the first submit and did not change.
    pub webhooks: &'a WebhookRules,
    /// The settings of the queue of all tasks but deliveries, if they were set before the first submit and did not change.
    pub settings: Option<&'a QueueSettings>,
    /// How groups take turns, if they do, and neither limits nor ordering keys keep tasks from starting.
    pub turns: Option<TurnBound<'a>>,
    /// What the run and its engine allow.
    pub conditions: Conditions,
}

/// The result of all checks.
#[derive(Debug, Default)]
pub struct Checked {
    /// The broken promises.
    pub breaches: Breaches,
    /// The lives of the tasks that follow the rules.
    pub lives: BTreeMap<TaskId, Life>,
    /// Searches for an order that gave up.
    pub undecided: usize,
}

impl History<'_> {
    /// Runs every check.
    pub fn check(&self) -> Checked {
        let mut breaches = Breaches::default();
        let (mut lives, errors) = life::lives(self.versions, self.damaged, self.conditions);
        if self.conditions.grouped {
            let claims = self
                .calls
                .iter()
                .filter(|call| call.kind == CallKind::Claim);
            let handed_out = claims.filter_map(|call| call.lease).collect();
            life::mark_returned(&mut lives, &handed_out);
        }
        let mut excluded = self.damaged.clone();
        for (id, error) in errors {
            breaches.add(Promise::Rules, format!("task {id}: {error}"));
            // The other checks would report the consequences of the same breach.
            excluded.insert(id);
        }
        let may_be_full = self
            .settings
            .is_some_and(|known| known.max_waiting.is_some());
        counts::check(self.calls, &lives, &excluded, may_be_full, &mut breaches);
        let clock_difference_ms = self.conditions.clock_difference_ms;
        keys::check(self.calls, &lives, clock_difference_ms, &mut breaches);
        attempts::check(
            self.calls,
            &lives,
            &excluded,
            self.excuses,
            self.conditions,
            &mut breaches,
        );
        let undecided = linearizability::check(self.calls, &lives, &excluded, &mut breaches);
        ordering::check(self.calls, &lives, &mut breaches);
        limits::check(self.limits, &lives, clock_difference_ms, &mut breaches);
        if let Some(bound) = self.turns {
            fairness::check(bound, &lives, &mut breaches);
        }
        amendments::check(self.calls, &lives, clock_difference_ms, &mut breaches);
        if let Some(settings) = self.settings {
            let is_exact = self.conditions.counts_waiting;
            settings::check(settings, is_exact, self.calls, &lives, &mut breaches);
        }
        webhooks::check_deliveries(
            self.webhooks,
            &lives,
            self.damaged,
            self.conditions,
            &mut breaches,
        );
        self.check_ends(&lives, &mut breaches);
        Checked {
            breaches,
            lives,
            undecided,
        }
    }

    /// Every task is finished, and its payloads can be read.
    fn check_ends(&self, lives: &BTreeMap<TaskId, Life>, breaches: &mut Breaches) {
        for (id, life) in lives {
            if let Some(task) = &life.last
                && !task.status.is_terminal()
            {
                let text = format!("task {id} is {} in the end", task.status);
                breaches.add(Promise::Ends, text);
            }
        }
        // A purge that was begun may have removed everything but the record. It can be repeated.
        let half_purged: BTreeSet<TaskId> = self
            .calls
            .iter()
            .filter(|call| call.kind == CallKind::Purge)
            .filter_map(|call| call.task)
            .collect();
        for (id, error) in self.unreadable {
            if !self.damaged.contains(id) && !half_purged.contains(id) {
                breaches.add(Promise::NothingLost, format!("task {id}: {error}"));
            }
        }
    }
}
