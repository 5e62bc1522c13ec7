//! Breaches of the final tasks.

use qo_check::{
    Breaches, ClientLog, CompletedAttempt, FinalState, Promise, StartedAttempt, Submission,
};
use qo_core::{Status, Task, TaskId};

use crate::scene::{WORKER, at, claim, complete, states, submission};

/// A completed task, and the log of its client and its worker.
struct Run {
    tasks: Vec<Task>,
    log: ClientLog,
}

impl Run {
    fn correct() -> Self {
        let task = states(submission(1), vec![claim(1), complete(1)])
            .pop()
            .unwrap();
        let id = task.id;
        let log = ClientLog {
            submissions: vec![Submission {
                id: Some(id),
                key: None,
                input: "null".to_owned(),
                acknowledged: vec![id],
            }],
            started: vec![StartedAttempt {
                task: id,
                number: 1,
                worker: WORKER.to_owned(),
            }],
            completed: vec![CompletedAttempt {
                task: id,
                number: 1,
                output: "1".to_owned(),
            }],
            ..ClientLog::default()
        };
        let tasks = vec![task];
        Self { tasks, log }
    }

    fn check(&self) -> Breaches {
        FinalState {
            tasks: &self.tasks,
            log: &self.log,
            ends: &[Status::Completed],
            has_one_clock: true,
            knows_completions: true,
        }
        .check()
    }
}

/// Breaks a correct run, and expects a breach whose description contains `text`.
fn finds(change: impl FnOnce(&mut Run), promise: Promise, text: &str) {
    let mut run = Run::correct();
    change(&mut run);
    let breaches = run.check();
    let mut found = breaches.0.iter();
    assert!(
        found.any(|(broken, what)| *broken == promise && what.contains(text)),
        "{promise:?} {text}:\n{breaches}"
    );
}

#[test]
fn a_correct_run_breaks_nothing() {
    let breaches = Run::correct().check();
    assert!(breaches.is_empty(), "{breaches}");
}

#[test]
fn lost_and_changed_tasks_are_found() {
    let lost = "was acknowledged and is lost";
    finds(|run| run.tasks.clear(), Promise::NothingLost, lost);
    let gone = "was started and is lost";
    finds(|run| run.tasks.clear(), Promise::NothingLost, gone);
    let gone = "was completed and is lost";
    finds(|run| run.tasks.clear(), Promise::NothingLost, gone);
    let input = |run: &mut Run| run.log.submissions[0].input = "1".to_owned();
    finds(input, Promise::NothingLost, "has another input");
}

#[test]
fn tasks_that_are_not_one_per_submission_are_found() {
    let twice = |run: &mut Run| run.tasks.push(run.tasks[0].clone());
    finds(twice, Promise::OneTask, "listed twice");
    let unknown = |run: &mut Run| run.log.submissions.clear();
    finds(unknown, Promise::OneTask, "nobody submitted");
    let other = TaskId::from_random(77);
    let two_ids = |run: &mut Run| run.log.submissions[0].acknowledged.push(other);
    finds(two_ids, Promise::OneTask, "acknowledged as tasks");
    finds(two_ids, Promise::OneTask, "was acknowledged as task");
    let key = |run: &mut Run| {
        run.tasks[0].idempotency_key = Some("k".parse().unwrap());
        let mut task = run.tasks[0].clone();
        task.id = other;
        run.tasks.push(task);
    };
    finds(key, Promise::OneTask, "have one key");
}

#[test]
fn attempts_with_two_holders_are_found() {
    let twice = |run: &mut Run| run.log.started.push(run.log.started[0].clone());
    finds(twice, Promise::OneAttempt, "was started twice");
    let unknown = |run: &mut Run| run.log.started[0].number = 2;
    finds(unknown, Promise::OneAttempt, "its stored holder is None");
    let elsewhere = |run: &mut Run| run.log.started[0].worker = "x".to_owned();
    finds(elsewhere, Promise::OneAttempt, "was started by x");
}

#[test]
fn completions_that_do_not_fit_are_found() {
    let twice = |run: &mut Run| run.log.completed.push(run.log.completed[0].clone());
    finds(twice, Promise::OneAttempt, "was completed twice");
    let output = |run: &mut Run| run.log.completed[0].output = "2".to_owned();
    finds(output, Promise::OneAttempt, "and holds 1");
    let unknown = |run: &mut Run| run.log.completed.clear();
    finds(
        unknown,
        Promise::OneAttempt,
        "no worker completed attempt 1",
    );
    let refused = |run: &mut Run| run.log.refused.push((run.tasks[0].id, 1));
    finds(refused, Promise::OneAttempt, "told that it lost the lease");
}

#[test]
fn histories_against_the_rules_are_found() {
    let running = |run: &mut Run| run.tasks[0].status = Status::Running;
    finds(running, Promise::Ends, "is running in the end");
    finds(running, Promise::Rules, "differs from its history");
    let skipped = |run: &mut Run| run.tasks[0].attempt = 2;
    finds(skipped, Promise::Rules, "differs from its history");
    let archived = |run: &mut Run| {
        let all = vec![claim(1), complete(1), qo_core::Action::Archive];
        run.tasks = states(submission(1), all).split_off(3);
    };
    finds(archived, Promise::Rules, "while it was");
    let back = |run: &mut Run| {
        let mut value = serde_json::to_value(&run.tasks[0]).unwrap();
        value["events"][1]["at"] = serde_json::to_value(at(100)).unwrap();
        run.tasks[0] = serde_json::from_value(value).unwrap();
    };
    finds(back, Promise::Rules, "is older than the one before");
    let number = |run: &mut Run| {
        let mut value = serde_json::to_value(&run.tasks[0]).unwrap();
        value["events"][1]["attempt"] = 3.into();
        run.tasks[0] = serde_json::from_value(value).unwrap();
    };
    finds(number, Promise::OneAttempt, "attempt 3 instead of 1");
    let operation = |run: &mut Run| {
        let mut value = serde_json::to_value(&run.tasks[0]).unwrap();
        value["events"][2]["op_id"] = value["events"][1]["op_id"].clone();
        run.tasks[0] = serde_json::from_value(value).unwrap();
    };
    finds(operation, Promise::Rules, "was applied twice");
}
