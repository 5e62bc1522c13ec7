//! Checks the promises as far as a run of real processes shows them: by what clients were acknowledged, by the handlers' log, by the final tasks
//! with their histories, and by every version that passed through the proxy.

use std::collections::{BTreeMap, BTreeSet};

use qo_check::cause::{Cause, cause_of};
use qo_check::{
    AttemptSpan, Breaches, ClientLog, Conditions, Excuse, FinalState, Promise, StartedAttempt,
    Submission, attempt_spans, lives,
};
use qo_core::{IdempotencyKey, Payload, Status, Task, TaskId, Timestamp};

use crate::proxy::Versions;
use crate::tasks::{Course, Ledger};

/// How long a fault may have effects after its end: a request that was held back, the claim that it made, the lease of that claim, and
/// the process that finds it expired.
const AFTERMATH_MS: u64 = 40_000;
/// How far the time in a history may be from this machine's: the store reports its time in whole seconds.
const CLOCK_DIFFERENCE_MS: u64 = 3_000;
/// The longest time from the start of a claim to the start of its attempt.
const CLAIM_MAX_MS: u64 = 45_000;

/// A finished run.
pub(crate) struct Evidence<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) tasks: &'a [Task],
    pub(crate) log: &'a HandlerLog,
    pub(crate) disturbances: &'a [Excuse],
    /// The time in which requests failed, if they did.
    pub(crate) trouble: Option<(Timestamp, Timestamp)>,
    /// Every version of every task, in the modes in which the proxy sees them.
    pub(crate) versions: Option<&'a Versions>,
}

/// The log of all handlers.
#[derive(Debug, Default)]
pub(crate) struct HandlerLog {
    started: Vec<StartedAttempt>,
    ended: BTreeSet<(TaskId, u32)>,
    failed: BTreeSet<(TaskId, u32)>,
    /// Lines that cannot be read.
    malformed: u64,
}

impl HandlerLog {
    pub(crate) fn parse(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let what = words.next();
            let id = words.next().and_then(|id| id.parse().ok());
            let attempt = words.next().and_then(|attempt| attempt.parse().ok());
            let (Some(what), Some(id), Some(attempt), Some(worker)) =
                (what, id, attempt, words.next())
            else {
                log.malformed += 1;
                continue;
            };
            match what {
                "start" => log.started.push(StartedAttempt {
                    task: id,
                    number: attempt,
                    worker: worker.to_owned(),
                }),
                "end" => {
                    log.ended.insert((id, attempt));
                }
                "fail" => {
                    log.failed.insert((id, attempt));
                }
                _ => log.malformed += 1,
            }
        }
        log
    }

    /// The number of started attempts.
    pub(crate) fn attempts(&self) -> u64 {
        self.started.len() as u64
    }
}

/// Runs every check.
pub(crate) fn check(evidence: &Evidence<'_>) -> Breaches {
    let ledger = evidence.ledger;
    let mut submissions: Vec<Submission> = ledger
        .specs
        .iter()
        .map(|spec| Submission {
            id: spec.id,
            key: spec.key.clone(),
            input: spec.input.clone(),
            acknowledged: Vec::new(),
        })
        .collect();
    for (spec, id) in &ledger.acknowledged {
        submissions[*spec].acknowledged.push(*id);
    }
    let mut breaches = FinalState {
        tasks: evidence.tasks,
        log: &ClientLog {
            submissions,
            started: evidence.log.started.clone(),
            ..ClientLog::default()
        },
        ends: &[Status::Completed, Status::Failed],
        has_one_clock: false,
        knows_completions: false,
    }
    .check();
    if evidence.log.malformed > 0 {
        let text = format!("{} malformed lines of handlers", evidence.log.malformed);
        breaches.add(Promise::Run, text);
    }
    for (spec, text) in &ledger.unacknowledged {
        breaches.add(Promise::Ends, format!("submission {spec} {text}"));
    }
    for task in evidence.tasks {
        if task.events_dropped == 0 {
            for span in attempt_spans(task) {
                check_end(task, span, evidence, &mut breaches);
            }
        }
        check_outcome(task, evidence, &mut breaches);
    }
    if let Some(versions) = evidence.versions {
        check_versions(versions, evidence.tasks, &mut breaches);
    }
    breaches
}

/// Every attempt that ended without success has an explanation.
fn check_end(task: &Task, span: AttemptSpan<'_>, evidence: &Evidence<'_>, breaches: &mut Breaches) {
    let claim = span.claim;
    let Some(end) = span.end.filter(|end| end.to != Status::Completed) else {
        return;
    };
    let (id, attempt) = (task.id, claim.attempt);
    if !matches!(cause_of(end), Cause::LeaseExpired | Cause::Released) {
        if !evidence.log.failed.contains(&(id, attempt)) {
            let text = format!(
                "task {id}, attempt {attempt} ended although its handler did not fail: {:?}",
                end.error
            );
            breaches.add(Promise::Explained, text);
        }
        return;
    }
    let worker = claim.worker.as_ref().map_or("", |worker| worker.as_str());
    let until = end.at.plus_millis(CLOCK_DIFFERENCE_MS);
    let from = claim.at.minus_millis(AFTERMATH_MS);
    let was_disturbed = evidence
        .disturbances
        .iter()
        .any(|excuse| excuse.covers(worker, from.minus_millis(CLAIM_MAX_MS), until));
    let was_troubled = evidence
        .trouble
        .is_some_and(|(begun, over)| begun <= until && over >= from);
    if !was_disturbed && !was_troubled {
        let text = format!(
            "task {id}, attempt {attempt} of {worker} from {} to {} has no explanation: {:?}",
            claim.at, end.at, end.error
        );
        breaches.add(Promise::Explained, text);
    }
}

/// The outcome of a task is the one of its handler.
fn check_outcome(task: &Task, evidence: &Evidence<'_>, breaches: &mut Breaches) {
    let id = task.id;
    match task.status {
        Status::Completed => {
            let output = match task.output() {
                Some(Payload::Inline(json)) => json.as_str().to_owned(),
                _ => String::new(),
            };
            if output != format!("{{\"attempt\":{}}}", task.attempt) {
                let text = format!(
                    "task {id} was completed by attempt {} and has the output {output:?}",
                    task.attempt
                );
                breaches.add(Promise::OneAttempt, text);
            }
            if !evidence.log.ended.contains(&(id, task.attempt)) {
                let text = format!("task {id} is completed, but its handler did not succeed");
                breaches.add(Promise::OneAttempt, text);
            }
        }
        Status::Failed => {
            let key = task.idempotency_key.as_ref().map(IdempotencyKey::as_str);
            let spec =
                evidence.ledger.specs.iter().find(|spec| {
                    spec.id == Some(id) || (key.is_some() && spec.key.as_deref() == key)
                });
            let is_doomed = spec.is_some_and(|spec| spec.course == Course::Doomed);
            if !is_doomed && task.retry_count < task.max_retries {
                let text = format!("task {id} failed with retries left");
                breaches.add(Promise::Explained, text);
            }
        }
        _ => {}
    }
}

/// Every stored version follows from the one before by the rules, and the last one is the listed task.
fn check_versions(versions: &Versions, tasks: &[Task], breaches: &mut Breaches) {
    let tasks: BTreeMap<TaskId, &Task> = tasks.iter().map(|task| (task.id, task)).collect();
    // Processes are stopped and may be late, but they share the clock of one machine.
    let (lives, errors) = lives(versions, &BTreeSet::new(), Conditions::strict());
    for (id, error) in errors {
        breaches.add(Promise::Rules, format!("task {id}: {error}"));
    }
    for (id, life) in &lives {
        match (&life.last, tasks.get(id)) {
            (Some(last), Some(task)) if last == *task => {}
            (_, None) => {
                let text = format!("task {id} was stored and is not listed");
                breaches.add(Promise::NothingLost, text);
            }
            _ => {
                let text = format!("task {id} differs from the last stored version");
                breaches.add(Promise::Rules, text);
            }
        }
    }
    for id in tasks.keys().filter(|id| !versions.contains_key(id)) {
        let text = format!("task {id} is listed and was never stored");
        breaches.add(Promise::Rules, text);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use qo_check::StoredVersion;
    use qo_core::task::encode;
    use qo_core::transition::{Failure, FailureKind, submit};
    use qo_core::{Action, Command, Jitter, Json, LeaseId, OpId, Submission};
    use qo_sim::random::Random;

    use super::*;
    use crate::tasks::TaskSpec;

    /// A run with one task.
    struct Scene {
        ledger: Ledger,
        versions: Vec<Task>,
        log: String,
        disturbances: Vec<Excuse>,
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_763_238_840_000).plus_millis(seconds * 1_000)
    }

    fn op(number: u128) -> OpId {
        OpId::from_random(number)
    }

    fn claim(lease: u128) -> Action {
        Action::Claim {
            worker: "w".parse().unwrap(),
            lease: LeaseId::from_random(lease),
            lease_ms: 6_000,
        }
    }

    fn complete(lease: u128, attempt: u32) -> Action {
        let json = Json::parse(format!("{{\"attempt\":{attempt}}}")).unwrap();
        Action::Complete {
            lease: LeaseId::from_random(lease),
            output: Some(Payload::Inline(json)),
        }
    }

    impl Scene {
        /// A task that goes through these actions, one every ten seconds.
        fn of(actions: Vec<Action>) -> Self {
            let mut random = Random::of(&[1]);
            let mut spec = std::iter::repeat_with(|| TaskSpec::draw(&mut random))
                .find(|spec| spec.id.is_some() && spec.course == Course::FailsFirst(0))
                .unwrap();
            spec.input = "\"0 0\"".to_owned();
            let id = spec.id.unwrap();
            let input = Payload::Inline(Json::parse(spec.input.clone()).unwrap());
            let submission = Submission::new(id, "work".parse().unwrap(), input);
            let mut task = submit(submission, op(1_000), at(0)).unwrap();
            let mut versions = vec![task.clone()];
            for (number, action) in actions.into_iter().enumerate() {
                let op = op(number as u128);
                let now = at(10 * (number as u64 + 1));
                task.apply(Command { op, action }, now).unwrap();
                versions.push(task.clone());
            }
            Self {
                ledger: Ledger {
                    specs: vec![spec],
                    acknowledged: vec![(0, id)],
                    ..Ledger::default()
                },
                versions,
                log: format!("start {id} 1 w 0\nend {id} 1 w 0\n"),
                disturbances: Vec::new(),
            }
        }

        fn good() -> Self {
            Self::of(vec![claim(1), complete(1, 1)])
        }

        fn last(&self) -> &Task {
            self.versions.last().unwrap()
        }

        fn broken(&self) -> BTreeSet<Promise> {
            let written = self.versions.iter().map(|task| StoredVersion {
                at: task.updated_at,
                tick: 0,
                body: Some(Bytes::from(encode(task).unwrap())),
                damaged: false,
            });
            let versions = [(self.last().id, written.collect())].into();
            let breaches = check(&Evidence {
                ledger: &self.ledger,
                tasks: std::slice::from_ref(self.last()),
                log: &HandlerLog::parse(&self.log),
                disturbances: &self.disturbances,
                trouble: None,
                versions: Some(&versions),
            });
            breaches.promises()
        }
    }

    #[test]
    fn a_task_that_succeeds_breaks_nothing() {
        assert_eq!(Scene::good().broken(), BTreeSet::new());
    }

    #[test]
    fn a_lost_or_changed_task_is_found() {
        let mut scene = Scene::good();
        scene.ledger.specs.push(scene.ledger.specs[0].clone());
        scene.ledger.specs[1].id = Some(TaskId::from_random(77));
        scene.ledger.acknowledged.push((1, TaskId::from_random(77)));
        assert_eq!(scene.broken(), [Promise::NothingLost].into());

        let mut scene = Scene::good();
        scene.ledger.specs[0].input = "\"1 0\"".to_owned();
        assert_eq!(scene.broken(), [Promise::NothingLost].into());
    }

    #[test]
    fn an_unsubmitted_task_and_one_with_two_ids_are_found() {
        let mut scene = Scene::good();
        scene.ledger = Ledger::default();
        assert_eq!(scene.broken(), [Promise::OneTask].into());

        let mut scene = Scene::good();
        scene.ledger.acknowledged.push((0, TaskId::from_random(77)));
        let expected = [Promise::NothingLost, Promise::OneTask].into();
        assert_eq!(scene.broken(), expected);
    }

    #[test]
    fn an_attempt_that_runs_twice_or_on_another_worker_is_found() {
        let mut scene = Scene::good();
        scene.log = format!("{0}{0}", scene.log);
        assert_eq!(scene.broken(), [Promise::OneAttempt].into());

        let mut scene = Scene::good();
        scene.log = scene.log.replace(" w ", " x ");
        assert_eq!(scene.broken(), [Promise::OneAttempt].into());

        let scene = Scene::of(vec![claim(1), complete(1, 2)]);
        assert_eq!(
            scene.broken(),
            [Promise::OneAttempt].into(),
            "another's output"
        );
    }

    #[test]
    fn a_missing_version_and_an_unfinished_task_are_found() {
        let mut scene = Scene::good();
        scene.versions.remove(1);
        assert_eq!(scene.broken(), [Promise::Rules].into());

        let scene = Scene::of(vec![claim(1)]);
        assert_eq!(scene.broken(), [Promise::Ends].into());
    }

    #[test]
    fn an_expired_lease_needs_an_explanation() {
        let expiry = || {
            let jitter = Jitter::NONE;
            vec![
                claim(1),
                Action::ExpireLease { jitter },
                claim(2),
                complete(2, 2),
            ]
        };
        let mut scene = Scene::of(expiry());
        let id = scene.last().id;
        scene.log = format!("start {id} 1 w 0\nstart {id} 2 w 0\nend {id} 2 w 0\n");
        assert_eq!(scene.broken(), [Promise::Explained].into());
        scene.disturbances.push(Excuse {
            worker: Some("w".to_owned()),
            from: at(12),
            until: at(13),
        });
        assert_eq!(scene.broken(), BTreeSet::new());
        scene.disturbances[0].worker = Some("another".to_owned());
        assert_eq!(scene.broken(), [Promise::Explained].into());
    }

    #[test]
    fn a_failure_needs_a_failed_handler() {
        let failure = Failure {
            kind: FailureKind::Retryable,
            error: "exit code 1".into(),
        };
        let fail = Action::Fail {
            lease: LeaseId::from_random(1),
            failure,
            jitter: Jitter::NONE,
        };
        let mut scene = Scene::of(vec![claim(1), fail, claim(2), complete(2, 2)]);
        let id = scene.last().id;
        scene.log = format!("start {id} 1 w 0\nstart {id} 2 w 0\nend {id} 2 w 0\n");
        assert_eq!(scene.broken(), [Promise::Explained].into());
        scene.log =
            format!("start {id} 1 w 0\nfail {id} 1 w 0\nstart {id} 2 w 0\nend {id} 2 w 0\n");
        assert_eq!(scene.broken(), BTreeSet::new());
    }
}
