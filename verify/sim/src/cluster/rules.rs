//! The rules of a run: ordering keys, limits, unique keys and failures. A quarter of the runs has them, because their checks take time.
//!
//! There every call is recorded and every stored version is kept, and after the run `qo-check` compares them. Limits are rejected in a cluster
//! with several groups, so runs with several groups have none.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Breaches, CallLog, Conditions, Excuse, History, Promise, Recorder};
use qo_core::transition::{Failure, FailureKind};
use qo_core::{
    DocumentId, DocumentKind, DocumentName, Json, Limit, OpId, RetryPolicy, TaskId, WebhookRules,
};
use qo_engine::Engine;
use qo_engine::api::{DocumentWrite, SubmitRequest};

use super::client::Answer;
use super::run::Stage;
use super::storms::Faults;
use super::versions::Versions;
use crate::actor::{limit_key, make_unique, ordering};
use crate::random::Random;
use crate::run::excuse;
use crate::sched::{ProcessId, Scheduler, lock};

/// One seed in this many has rules.
const RULES_EVERY: u64 = 4;
const RULES_REMAINDER: u64 = 2;

/// A limit of all tasks, and one of a limit key.
const LIMITS: [(&str, &str); 2] = [
    ("all", r#"{"queue":"default","concurrent":3}"#),
    (
        "account",
        r#"{"limit_key":"account-0","concurrent":1,"starts":{"max":4,"window_ms":20000}}"#,
    ),
];

/// How far apart the clocks of two nodes may be, where they are right and where they are wrong.
const RIGHT_CLOCKS_MS: u64 = 3_000;
const WRONG_CLOCKS_MS: u64 = 65_000;

/// The rules of a run, and what its checks need.
pub(super) struct Rules {
    has_order: bool,
    has_limits: bool,
    is_unique: bool,
    log: CallLog,
    /// The workers that kept tasks for too long, and from when until when.
    late: Mutex<Vec<(u64, Duration, Duration)>>,
    pub(super) versions: Arc<Versions>,
}

impl Rules {
    /// The rules of a seed, if it has any.
    pub(super) fn of(seed: u64, faults: &Faults, scheduler: &Scheduler) -> Option<Self> {
        if seed % RULES_EVERY != RULES_REMAINDER {
            return None;
        }
        let mut dice = Random::of(&[seed, 0x4c1e]);
        Some(Self {
            has_order: dice.chance(0.8),
            has_limits: dice.chance(0.6) && faults.groups == 1,
            is_unique: dice.chance(0.5),
            log: CallLog::new(Arc::new(scheduler.clone())),
            late: Mutex::default(),
            versions: Arc::new(Versions::new(scheduler, faults.skew)),
        })
    }

    /// The engine of a node, with its calls recorded.
    pub(super) fn recorded(&self, node: ProcessId, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        Arc::new(Recorder::new(node, engine, self.log.clone()))
    }

    /// Whether a submit may change the task that holds its key.
    pub(super) fn is_unique(&self) -> bool {
        self.is_unique
    }

    /// Lets a submit be subject to the rules. `left` is how long the faults last.
    pub(super) fn apply(&self, request: &mut SubmitRequest, dice: &mut Random, left: Duration) {
        let random = u128::from(dice.bits()) << 64 | u128::from(dice.bits());
        let id = TaskId::from_random(random);
        request.id = Some(id);
        request.max_retries = u32::try_from(dice.below(4)).ok();
        request.retry_policy = RetryPolicy {
            initial_interval_ms: 200,
            max_interval_ms: 5_000,
            ..RetryPolicy::default()
        };
        if self.has_order {
            request.ordering = ordering(request);
        }
        if self.is_unique {
            make_unique(request, left);
        }
        if self.has_limits {
            request.limit_key = limit_key(id);
        }
        // Where there are several groups, the id of a task belongs to the group of its key.
        if let Some(route) = request.route() {
            request.id = Some(id.with_route(route));
        }
    }

    /// How an attempt fails, if it does.
    pub(super) fn failure(dice: &mut Random) -> Option<Failure> {
        let kind = match dice.below(10) {
            0 | 1 => FailureKind::Retryable,
            2 => FailureKind::Permanent,
            _ => return None,
        };
        let error = "the handler said no".into();
        Some(Failure { kind, error })
    }

    /// A worker kept tasks for too long.
    pub(super) fn note_late(&self, worker: u64, from: Duration, until: Duration) {
        lock(&self.late).push((worker, from, until));
    }

    /// Checks the run. Where there were faults, they explain every expired lease.
    pub(super) fn check(&self, faults: &Faults) -> Breaches {
        let mut excuses: Vec<Excuse> = (lock(&self.late).iter())
            .map(|(worker, from, until)| excuse(Some(worker_name(*worker)), *from, *until))
            .collect();
        excuses.extend((!faults.is_calm()).then(|| Excuse::always(None)));
        let checked = History {
            versions: &self.versions.take(),
            calls: &self.log.calls(),
            excuses: &excuses,
            damaged: &BTreeSet::new(),
            unreadable: &[],
            limits: &self.limits(),
            webhooks: &WebhookRules::default(),
            settings: None,
            turns: None,
            conditions: Conditions {
                grouped: true,
                clock_difference_ms: if faults.skew {
                    WRONG_CLOCKS_MS
                } else {
                    RIGHT_CLOCKS_MS
                },
                ..Conditions::strict()
            },
        };
        checked.check().breaches
    }

    fn limits(&self) -> Vec<(DocumentName, Limit)> {
        let limits = LIMITS.iter().filter(|_| self.has_limits);
        let read = limits.filter_map(|(name, body)| {
            let limit = Limit::parse(&Json::parse(*body).ok()?).ok()?;
            Some((name.parse().ok()?, limit))
        });
        read.collect()
    }
}

/// The name of a worker.
pub(super) fn worker_name(number: u64) -> String {
    format!("worker{number}")
}

impl Stage {
    /// Writes the limits, before anything is submitted.
    pub(super) async fn write_limits(&self) {
        if !self.rules.as_ref().is_some_and(|rules| rules.has_limits) {
            return;
        }
        let mut dice = Random::of(&[self.seed, 0xd0c5]);
        for (name, body) in LIMITS {
            let kind = DocumentKind::Limits;
            let (Ok(name), Ok(body)) = (name.parse(), Json::parse(body)) else {
                continue;
            };
            let op = OpId::from_random(u128::from(dice.bits()));
            let write = DocumentWrite::new(DocumentId { kind, name }, None, Some(body), op);
            let writing = self.insist(&mut dice, |engine| {
                let write = write.clone();
                Box::pin(async move { engine.write_document(write).await })
            });
            if !matches!(writing.await, Answer::Done(_)) {
                self.breach(Promise::Run, "a limit cannot be set".to_owned());
            }
        }
    }
}
