//! A correct history of one task, for tests to break.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use qo_check::{
    Call, CallKind, Checked, Conditions, Excuse, History, Promise, Reply, StoredVersion, TaskView,
    TurnBound,
};
use qo_core::task::encode;
use qo_core::transition::submit;
use qo_core::{
    Action, Command, DocumentName, Jitter, Json, LeaseId, Limit, OpId, Payload, QueueSettings,
    Submission, Task, TaskId, Timestamp, WebhookRules,
};

pub(crate) const WORKER: &str = "w";

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_763_238_840_000).plus_millis(seconds * 1_000)
}

pub(crate) fn lease(number: u128) -> LeaseId {
    LeaseId::from_random(number)
}

pub(crate) fn claim(number: u128) -> Action {
    Action::Claim {
        worker: WORKER.parse().unwrap(),
        lease: lease(number),
        lease_ms: 6_000,
    }
}

pub(crate) fn complete(number: u128) -> Action {
    Action::Complete {
        lease: lease(number),
        output: Some(Payload::Inline(Json::parse("1").unwrap())),
    }
}

pub(crate) fn expire() -> Action {
    Action::ExpireLease {
        jitter: Jitter::NONE,
    }
}

/// The states of a new task and after each action, one every ten seconds.
pub(crate) fn states(submission: Submission, actions: Vec<Action>) -> Vec<Task> {
    let mut task = submit(submission, OpId::from_random(1_000), at(0)).unwrap();
    let mut states = vec![task.clone()];
    for (number, action) in actions.into_iter().enumerate() {
        let op = OpId::from_random(number as u128);
        let now = at(10 * (number as u64 + 1));
        task.apply(Command { op, action }, now).unwrap();
        states.push(task.clone());
    }
    states
}

pub(crate) fn submission(id: u128) -> Submission {
    let input = Payload::Inline(Json::null());
    Submission::new(TaskId::from_random(id), "work".parse().unwrap(), input)
}

/// The versions and calls of a run.
pub(crate) struct Scene {
    pub(crate) versions: BTreeMap<TaskId, Vec<StoredVersion>>,
    pub(crate) calls: Vec<Call>,
    pub(crate) excuses: Vec<Excuse>,
    pub(crate) unreadable: Vec<(TaskId, String)>,
    pub(crate) limits: Vec<(DocumentName, Limit)>,
    pub(crate) settings: Option<QueueSettings>,
    pub(crate) webhooks: WebhookRules,
    /// The most turns of a group, if groups take turns, and when new rounds begin.
    pub(crate) turns: Option<(u32, Vec<u64>)>,
    pub(crate) conditions: Conditions,
}

/// The call that requests an action, if a caller requests it.
fn kind_of(action: &Action) -> Option<(CallKind, Option<LeaseId>)> {
    match action {
        Action::Claim { lease, .. } => Some((CallKind::Claim, Some(*lease))),
        Action::Renew { lease, .. } => Some((CallKind::Renew, Some(*lease))),
        Action::Complete { lease, .. } => Some((CallKind::Complete, Some(*lease))),
        Action::Fail { lease, .. } => Some((CallKind::Fail, Some(*lease))),
        Action::Release { lease } => Some((CallKind::Release, Some(*lease))),
        Action::Cancel { .. } => Some((CallKind::Cancel, None)),
        Action::Replay => Some((CallKind::Replay, None)),
        Action::Redrive { .. } => Some((CallKind::Redrive, None)),
        Action::Archive => Some((CallKind::Archive, None)),
        _ => None,
    }
}

impl Scene {
    /// A task that goes through these actions. Every call is acknowledged before the next one begins.
    pub(crate) fn of(submission: Submission, actions: Vec<Action>) -> Self {
        let key = submission
            .idempotency
            .as_ref()
            .map(|known| known.key.clone());
        let mut kinds = vec![Some((CallKind::Submit, None))];
        kinds.extend(actions.iter().map(kind_of));
        let states = states(submission, actions);
        let id = states[0].id;
        let mut versions = Vec::new();
        let mut calls = Vec::new();
        for (number, (task, kind)) in states.iter().zip(kinds).enumerate() {
            let tick = 10 * number as u64;
            versions.push(StoredVersion {
                at: task.updated_at,
                tick: tick + 5,
                body: Some(Bytes::from(encode(task).unwrap())),
                damaged: false,
            });
            if let Some((kind, lease)) = kind {
                calls.push(Call {
                    caller: 1,
                    kind,
                    task: Some(id),
                    lease,
                    key: key.clone().filter(|_| kind == CallKind::Submit),
                    asked: None,
                    called: tick,
                    answered: Some(tick + 9),
                    reply: Reply::Done(Some(TaskView::of(task))),
                });
            }
        }
        Self {
            versions: [(id, versions)].into(),
            calls,
            excuses: Vec::new(),
            unreadable: Vec::new(),
            limits: Vec::new(),
            settings: None,
            webhooks: WebhookRules::default(),
            turns: None,
            conditions: Conditions {
                renewals_once: true,
                claims_answered: true,
                ..Conditions::strict()
            },
        }
    }

    /// A task that is claimed and completed.
    pub(crate) fn completed() -> Self {
        Self::of(submission(1), vec![claim(1), complete(1)])
    }

    pub(crate) fn id(&self) -> TaskId {
        *self.versions.keys().next().unwrap()
    }

    pub(crate) fn stored(&mut self) -> &mut Vec<StoredVersion> {
        self.versions.values_mut().next().unwrap()
    }

    /// Moves everything to later ticks.
    pub(crate) fn shift(&mut self, by: u64) {
        for version in self.versions.values_mut().flatten() {
            version.tick += by;
        }
        for call in &mut self.calls {
            call.called += by;
            call.answered = call.answered.map(|tick| tick + by);
        }
    }

    /// Adds the versions and calls of another scene.
    pub(crate) fn join(&mut self, other: Self) {
        self.versions.extend(other.versions);
        self.calls.extend(other.calls);
    }

    /// Delays everything after the submit.
    pub(crate) fn start_later(&mut self, by: u64) {
        let later = |tick: u64| tick + if tick >= 10 { by } else { 0 };
        for version in self.versions.values_mut().flatten() {
            version.tick = later(version.tick);
        }
        for call in &mut self.calls {
            call.called = later(call.called);
            call.answered = call.answered.map(later);
        }
    }

    /// The first call of a kind.
    pub(crate) fn call(&mut self, kind: CallKind) -> &mut Call {
        let mut calls = self.calls.iter_mut();
        calls.find(|call| call.kind == kind).unwrap()
    }

    pub(crate) fn check(&self) -> Checked {
        History {
            versions: &self.versions,
            calls: &self.calls,
            excuses: &self.excuses,
            damaged: &BTreeSet::new(),
            unreadable: &self.unreadable,
            limits: &self.limits,
            settings: self.settings.as_ref(),
            webhooks: &self.webhooks,
            turns: self
                .turns
                .as_ref()
                .map(|(turns_max, new_rounds)| TurnBound {
                    turns_max: *turns_max,
                    new_rounds,
                }),
            conditions: self.conditions,
        }
        .check()
    }

    pub(crate) fn broken(&self) -> BTreeSet<Promise> {
        self.check().breaches.promises()
    }

    /// Checks, and expects one breach whose description contains `text`.
    pub(crate) fn finds(&self, promise: Promise, text: &str) {
        let breaches = self.check().breaches;
        let mut found = breaches.0.iter();
        assert!(
            found.any(|(broken, what)| *broken == promise && what.contains(text)),
            "{promise:?} {text}:\n{breaches}"
        );
    }
}
