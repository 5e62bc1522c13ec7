//! Whether the promises were kept, as far as that can be seen from outside: by what clients were told, by what handlers wrote into their log, by what
//! is stored in the end with its history, and by every version that has passed through the proxy.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::task::Event;
use qo_core::{Payload, Status, Task, TaskId, Timestamp};
use qo_sim::check::{Found, Manner, Promise, lives};

use crate::monkey::Disturbance;
use crate::proxy::Versions;
use crate::tasks::{Course, Ledger};

/// Something of the trouble may still be on its way for so long after its end: a request that was held back, a claim that it made, the lease of that
/// claim, and whoever finds out that it has run out.
const AFTERMATH_MS: u64 = 40_000;
/// How far the time in a history may be from that of this machine: the store tells its own in whole seconds.
const CLOCKS_APART_MS: u64 = 3_000;
/// A claim may be on its way for so long before its attempt begins.
const CLAIM_TAKES_MS: u64 = 45_000;

/// What a run has left to be judged.
pub(crate) struct Evidence<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) tasks: &'a [Task],
    pub(crate) log: &'a HandlerLog,
    pub(crate) disturbances: &'a [Disturbance],
    /// When requests failed; never, if they did not.
    pub(crate) trouble: Option<(Timestamp, Timestamp)>,
    /// Every version of every task, where they can be seen.
    pub(crate) versions: Option<&'a Versions>,
}

/// What handlers wrote.
#[derive(Debug, Default)]
pub(crate) struct HandlerLog {
    /// By which worker an attempt was started, as often as it was.
    started: BTreeMap<(TaskId, u32), Vec<String>>,
    ended: BTreeSet<(TaskId, u32)>,
    failed: BTreeSet<(TaskId, u32)>,
    /// Lines that are none.
    strange: u64,
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
                log.strange += 1;
                continue;
            };
            match what {
                "start" => log
                    .started
                    .entry((id, attempt))
                    .or_default()
                    .push(worker.to_owned()),
                "end" => {
                    log.ended.insert((id, attempt));
                }
                "fail" => {
                    log.failed.insert((id, attempt));
                }
                _ => log.strange += 1,
            }
        }
        log
    }

    /// How many attempts were started.
    pub(crate) fn attempts(&self) -> u64 {
        self.started.len() as u64
    }
}

/// Checks everything, and says all that is wrong.
pub(crate) fn check(evidence: &Evidence<'_>) -> Found {
    let mut found = Found::default();
    let tasks: BTreeMap<TaskId, &Task> =
        evidence.tasks.iter().map(|task| (task.id, task)).collect();
    if tasks.len() != evidence.tasks.len() {
        found.add(Promise::OneTask, "a task is listed twice".to_owned());
    }
    if evidence.log.strange > 0 {
        let what = format!("{} lines of the handlers are none", evidence.log.strange);
        found.add(Promise::Run, what);
    }
    told(evidence, &tasks, &mut found);
    for task in evidence.tasks {
        if !task.status.is_terminal() {
            let what = format!("task {} is {} in the end", task.id, task.status);
            found.add(Promise::Ends, what);
        }
        history(task, evidence, &mut found);
        outcome(task, evidence, &mut found);
    }
    attempts(evidence, &tasks, &mut found);
    if let Some(versions) = evidence.versions {
        passed_through(versions, &tasks, &mut found);
    }
    found
}

/// What clients were told, against what is there.
fn told(evidence: &Evidence<'_>, tasks: &BTreeMap<TaskId, &Task>, found: &mut Found) {
    let ledger = evidence.ledger;
    let mut ids: BTreeMap<usize, TaskId> = BTreeMap::new();
    for (wish, id) in &ledger.told {
        let first = *ids.entry(*wish).or_insert(*id);
        if first != *id {
            let what = format!("wish {wish} was acknowledged as task {first} and as task {id}");
            found.add(Promise::OneTask, what);
        }
        let wanted = &ledger.wishes[*wish];
        if wanted.id.is_some_and(|wanted| wanted != *id) {
            let what = format!("{:?} was acknowledged as task {id}", wanted.id);
            found.add(Promise::OneTask, what);
        }
        match tasks.get(id) {
            None => found.add(
                Promise::NothingLost,
                format!("task {id} was acknowledged and is gone"),
            ),
            Some(task) => {
                let is_same =
                    matches!(task.input(), Payload::Inline(json) if json.as_str() == wanted.input);
                if !is_same {
                    let what = format!("task {id} has another input than was acknowledged");
                    found.add(Promise::NothingLost, what);
                }
            }
        }
    }
    let wanted_ids: BTreeSet<TaskId> = ledger.wishes.iter().filter_map(|wish| wish.id).collect();
    let wanted_keys: BTreeSet<&str> = ledger
        .wishes
        .iter()
        .filter_map(|wish| wish.key.as_deref())
        .collect();
    let mut of_key: BTreeMap<&str, TaskId> = BTreeMap::new();
    for task in evidence.tasks {
        match &task.idempotency_key {
            Some(key) => {
                if !wanted_keys.contains(key.as_str()) {
                    let what = format!("nobody has asked for task {}", task.id);
                    found.add(Promise::OneTask, what);
                }
                if let Some(other) = of_key.insert(key.as_str(), task.id) {
                    let what = format!("tasks {other} and {} have one key", task.id);
                    found.add(Promise::OneTask, what);
                }
            }
            None if !wanted_ids.contains(&task.id) => {
                let what = format!("nobody has asked for task {}", task.id);
                found.add(Promise::OneTask, what);
            }
            None => {}
        }
    }
    for (wish, what) in &ledger.unheard {
        found.add(Promise::Ends, format!("wish {wish} {what}"));
    }
}

/// The task's own events: each follows from the one before, attempts count up, and nothing follows an end.
fn history(task: &Task, evidence: &Evidence<'_>, found: &mut Found) {
    if task.events_dropped > 0 {
        return;
    }
    let id = task.id;
    let mut status: Option<Status> = None;
    let mut attempt = 0;
    let mut claimed: Option<&Event> = None;
    for event in task.events.iter() {
        if event.from != status {
            let what = format!(
                "task {id}: from {:?} to {}, while it was {status:?}",
                event.from, event.to
            );
            found.add(Promise::Rules, what);
        }
        if status.is_some_and(Status::is_terminal) {
            let what = format!("task {id} went on after its end, to {}", event.to);
            found.add(Promise::Rules, what);
        }
        let is_claim = event.from == Some(Status::Pending) && event.to == Status::Running;
        attempt += u32::from(is_claim);
        if event.attempt != attempt {
            let what = format!("task {id}: attempt {} where {attempt} is", event.attempt);
            found.add(Promise::OneAttempt, what);
        }
        if is_claim {
            claimed = Some(event);
        } else if event.from == Some(Status::Running)
            && let Some(claim) = claimed.take()
        {
            ended(task, claim, event, evidence, found);
        }
        status = Some(event.to);
    }
    if status != Some(task.status) || attempt != task.attempt {
        let what = format!("task {id} is not what its history says");
        found.add(Promise::Rules, what);
    }
}

/// Why an attempt has ended without success.
fn ended(task: &Task, claim: &Event, end: &Event, evidence: &Evidence<'_>, found: &mut Found) {
    if end.to == Status::Completed {
        return;
    }
    let attempt = (task.id, claim.attempt);
    let error = end.error.as_deref().unwrap_or("");
    let failed = evidence.log.failed.contains(&attempt);
    let ran_out = error.starts_with("the lease ran out");
    let released = error.starts_with("released");
    if !ran_out && !released {
        if !failed {
            let what = format!(
                "task {}, attempt {}: its handler did not fail, and yet: {error}",
                task.id, claim.attempt
            );
            found.add(Promise::Explained, what);
        }
        return;
    }
    let worker = claim.worker.as_ref().map(ToString::to_string);
    let from = claim.at.minus_millis(CLAIM_TAKES_MS);
    let struck = evidence.disturbances.iter().any(|disturbance| {
        (disturbance.worker.is_none() || disturbance.worker == worker)
            && disturbance.from <= end.at.plus_millis(CLOCKS_APART_MS)
            && disturbance.until.plus_millis(AFTERMATH_MS) >= from
    });
    let troubled = evidence.trouble.is_some_and(|(begun, over)| {
        end.at.plus_millis(CLOCKS_APART_MS) >= begun && claim.at <= over.plus_millis(AFTERMATH_MS)
    });
    if !struck && !troubled {
        let what = format!(
            "task {}, attempt {} of {worker:?} from {} to {}: {error}; nothing explains it",
            task.id, claim.attempt, claim.at, end.at
        );
        found.add(Promise::Explained, what);
    }
}

/// How a task has ended, against what its handler did.
fn outcome(task: &Task, evidence: &Evidence<'_>, found: &mut Found) {
    let id = task.id;
    match task.status {
        Status::Completed => {
            let said = match task.output() {
                Some(Payload::Inline(json)) => json.as_str().to_owned(),
                _ => String::new(),
            };
            if said != format!("{{\"attempt\":{}}}", task.attempt) {
                let what = format!(
                    "task {id} was completed by attempt {}, and its output is {said:?}",
                    task.attempt
                );
                found.add(Promise::OneAttempt, what);
            }
            if !evidence.log.ended.contains(&(id, task.attempt)) {
                let what = format!("task {id} is completed, and its handler did not end well");
                found.add(Promise::OneAttempt, what);
            }
        }
        Status::Failed => {
            let wanted = evidence
                .ledger
                .wishes
                .iter()
                .find(|wish| wish.id == Some(id) || is_key_of(task, wish.key.as_deref()));
            let doomed = wanted.is_some_and(|wish| wish.course == Course::Doomed);
            if !doomed && task.retry_count < task.max_retries {
                let what = format!("task {id} was given up with retries left");
                found.add(Promise::Explained, what);
            }
        }
        Status::Cancelled => {
            found.add(Promise::Rules, format!("nobody called task {id} off"));
        }
        _ => {}
    }
}

fn is_key_of(task: &Task, key: Option<&str>) -> bool {
    key.is_some()
        && task
            .idempotency_key
            .as_ref()
            .map(qo_core::IdempotencyKey::as_str)
            == key
}

/// Each attempt was started once, by the worker that held it.
fn attempts(evidence: &Evidence<'_>, tasks: &BTreeMap<TaskId, &Task>, found: &mut Found) {
    for ((id, attempt), workers) in &evidence.log.started {
        if workers.len() > 1 {
            let what = format!("attempt {attempt} of task {id} was started by {workers:?}");
            found.add(Promise::OneAttempt, what);
        }
        let Some(task) = tasks.get(id) else {
            found.add(
                Promise::NothingLost,
                format!("task {id} was run and is gone"),
            );
            continue;
        };
        if task.events_dropped > 0 {
            continue;
        }
        let claim = task
            .events
            .iter()
            .find(|event| event.to == Status::Running && event.attempt == *attempt);
        let holder = claim
            .and_then(|event| event.worker.as_ref())
            .map(ToString::to_string);
        if holder.as_ref() != workers.first() {
            let what = format!(
                "attempt {attempt} of task {id} was run by {workers:?}, and {holder:?} holds it"
            );
            found.add(Promise::OneAttempt, what);
        }
    }
}

/// Every stored version follows from the one before by the rules, and the last one is what is there.
fn passed_through(versions: &Versions, tasks: &BTreeMap<TaskId, &Task>, found: &mut Found) {
    // Processes are stopped, so that they may be late; clocks are those of one machine.
    let manner = Manner {
        undisturbed: true,
        grouped: false,
    };
    let (lives, wrong) = lives(versions, &BTreeSet::new(), manner);
    for (id, error) in wrong {
        found.add(Promise::Rules, format!("task {id}: {error}"));
    }
    for (id, life) in &lives {
        match (&life.last, tasks.get(id)) {
            (Some(last), Some(task)) if last == *task => {}
            (_, None) => found.add(
                Promise::NothingLost,
                format!("task {id} was stored and is not listed"),
            ),
            _ => found.add(
                Promise::Rules,
                format!("task {id} is not what was stored last"),
            ),
        }
    }
    for id in tasks.keys().filter(|id| !versions.contains_key(id)) {
        let what = format!("task {id} is there, and nobody has stored it");
        found.add(Promise::Rules, what);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use qo_core::task::encode;
    use qo_core::transition::{Failure, FailureKind, submit};
    use qo_core::{Action, Command, Jitter, Json, LeaseId, OpId, Submission};
    use qo_sim::random::Random;
    use qo_sim::store::Written;

    use super::*;
    use crate::tasks::Wish;

    /// A queue with one task that has gone well, and all that is known of it.
    struct Scene {
        ledger: Ledger,
        versions: Vec<Task>,
        log: String,
        disturbances: Vec<Disturbance>,
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
        /// A task that goes through these actions, one a second.
        fn of(actions: Vec<Action>) -> Self {
            let mut random = Random::of(&[1]);
            let mut wish = std::iter::repeat_with(|| Wish::draw(&mut random))
                .find(|wish| wish.id.is_some() && wish.course == Course::FailsFirst(0))
                .unwrap();
            wish.input = "\"0 0\"".to_owned();
            let id = wish.id.unwrap();
            let input = Payload::Inline(Json::parse(wish.input.clone()).unwrap());
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
                    wishes: vec![wish],
                    told: vec![(0, id)],
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

        fn found(&self) -> BTreeSet<Promise> {
            let written = self.versions.iter().map(|task| Written {
                at: task.updated_at,
                tick: 0,
                body: Some(Bytes::from(encode(task).unwrap())),
                damaged: false,
            });
            let versions = [(self.last().id, written.collect())].into();
            let found = check(&Evidence {
                ledger: &self.ledger,
                tasks: std::slice::from_ref(self.last()),
                log: &HandlerLog::parse(&self.log),
                disturbances: &self.disturbances,
                trouble: None,
                versions: Some(&versions),
            });
            found.promises()
        }
    }

    #[test]
    fn a_task_that_goes_well_breaks_nothing() {
        assert_eq!(Scene::good().found(), BTreeSet::new());
    }

    #[test]
    fn an_acknowledged_task_that_is_gone_or_another_is_found() {
        let mut scene = Scene::good();
        scene.ledger.wishes.push(scene.ledger.wishes[0].clone());
        scene.ledger.wishes[1].id = Some(TaskId::from_random(77));
        scene.ledger.told.push((1, TaskId::from_random(77)));
        assert_eq!(scene.found(), [Promise::NothingLost].into());

        let mut scene = Scene::good();
        scene.ledger.wishes[0].input = "\"1 0\"".to_owned();
        assert_eq!(scene.found(), [Promise::NothingLost].into());
    }

    #[test]
    fn a_task_that_nobody_wants_or_that_was_told_twice_is_found() {
        let mut scene = Scene::good();
        scene.ledger = Ledger::default();
        assert_eq!(scene.found(), [Promise::OneTask].into());

        let mut scene = Scene::good();
        scene.ledger.told.push((0, TaskId::from_random(77)));
        let expected = [Promise::NothingLost, Promise::OneTask].into();
        assert_eq!(scene.found(), expected);
    }

    #[test]
    fn an_attempt_that_runs_twice_or_elsewhere_is_found() {
        let mut scene = Scene::good();
        scene.log = format!("{0}{0}", scene.log);
        assert_eq!(scene.found(), [Promise::OneAttempt].into());

        let mut scene = Scene::good();
        scene.log = scene.log.replace(" w ", " x ");
        assert_eq!(scene.found(), [Promise::OneAttempt].into());

        let scene = Scene::of(vec![claim(1), complete(1, 2)]);
        assert_eq!(
            scene.found(),
            [Promise::OneAttempt].into(),
            "another's output"
        );
    }

    #[test]
    fn a_version_that_is_missing_and_a_task_that_does_not_end_are_found() {
        let mut scene = Scene::good();
        scene.versions.remove(1);
        assert_eq!(scene.found(), [Promise::Rules].into());

        let scene = Scene::of(vec![claim(1)]);
        assert_eq!(scene.found(), [Promise::Ends].into());
    }

    #[test]
    fn a_lease_that_runs_out_needs_a_reason() {
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
        assert_eq!(scene.found(), [Promise::Explained].into());
        scene.disturbances.push(Disturbance {
            worker: Some("w".to_owned()),
            from: at(12),
            until: at(13),
        });
        assert_eq!(scene.found(), BTreeSet::new());
        scene.disturbances[0].worker = Some("another".to_owned());
        assert_eq!(scene.found(), [Promise::Explained].into());
    }

    #[test]
    fn a_failure_needs_a_handler_that_failed() {
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
        assert_eq!(scene.found(), [Promise::Explained].into());
        scene.log =
            format!("start {id} 1 w 0\nfail {id} 1 w 0\nstart {id} 2 w 0\nend {id} 2 w 0\n");
        assert_eq!(scene.found(), BTreeSet::new());
    }
}
