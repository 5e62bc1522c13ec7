//! Whether the promises were kept: what the queue holds in the end, with its histories, against what the clients were told.

use std::collections::{BTreeMap, BTreeSet};

use qo::{Event, LeaseId, Status, Task, TaskId};
use qo_core::Payload;

use super::clients::Notes;

/// Everything that is wrong.
pub(super) fn check(notes: &Notes, tasks: &[Task]) -> Vec<String> {
    let mut wrong = Vec::new();
    let by_id: BTreeMap<TaskId, &Task> = tasks.iter().map(|task| (task.id, task)).collect();
    if by_id.len() != tasks.len() {
        wrong.push("a task is listed twice".to_owned());
    }
    for id in &notes.acknowledged {
        if !by_id.contains_key(id) {
            wrong.push(format!("task {id} was acknowledged and is lost"));
        }
    }
    for task in tasks {
        if !notes.asked.contains(&task.id) {
            wrong.push(format!("nobody submitted task {}", task.id));
        }
        if task.status != Status::Completed {
            wrong.push(format!("task {} is {} in the end", task.id, task.status));
        }
        if let Err(error) = check_history(task) {
            wrong.push(format!("task {}: {error}: {:?}", task.id, task.events));
        }
    }
    check_attempts(notes, &by_id, &mut wrong);
    check_ends(notes, &by_id, &mut wrong);
    wrong
}

/// One attempt after the other, each ended before the next begins, and nothing after the end.
fn check_history(task: &Task) -> Result<(), String> {
    let events: &[Event] = &task.events;
    let mut status = None;
    let mut attempt = 0;
    let mut at = None;
    for event in events {
        if event.from != status {
            return Err(format!("a step from {:?} in {status:?}", event.from));
        }
        if at.is_some_and(|at| event.at < at) {
            return Err("time goes back".to_owned());
        }
        match (event.from, event.to) {
            (None, Status::Pending) => {}
            (Some(Status::Pending), Status::Running) if event.attempt == attempt + 1 => {
                attempt += 1;
            }
            (Some(Status::Running), Status::Pending | Status::Completed)
                if event.attempt == attempt => {}
            _ => return Err(format!("no such step as {event:?} after attempt {attempt}")),
        }
        (status, at) = (Some(event.to), Some(event.at));
    }
    if status == Some(task.status) && attempt == task.attempt {
        Ok(())
    } else {
        Err("the history ends elsewhere than the task".to_owned())
    }
}

/// Nobody got an attempt that somebody else had, or that never was.
fn check_attempts(notes: &Notes, tasks: &BTreeMap<TaskId, &Task>, wrong: &mut Vec<String>) {
    let mut holders: BTreeMap<(TaskId, u32), LeaseId> = BTreeMap::new();
    for (id, attempt, lease) in &notes.handed_out {
        if holders.insert((*id, *attempt), *lease).is_some() {
            wrong.push(format!(
                "attempt {attempt} of task {id} was handed out twice"
            ));
        }
        let known = tasks.get(id).is_some_and(|task| *attempt <= task.attempt);
        if !known {
            wrong.push(format!("attempt {attempt} of task {id} is not stored"));
        }
    }
}

/// A task has one end, and it is the one that its worker was told of; nobody was told that an end was refused that counts.
fn check_ends(notes: &Notes, tasks: &BTreeMap<TaskId, &Task>, wrong: &mut Vec<String>) {
    for (id, attempt) in &notes.refused {
        if tasks.get(id).is_some_and(|task| task.attempt == *attempt) {
            wrong.push(format!(
                "task {id} was completed in attempt {attempt}, and its worker was told that the lease is lost"
            ));
        }
    }
    let mut ended = BTreeSet::new();
    for (id, attempt, output) in &notes.completed {
        if !ended.insert(*id) {
            wrong.push(format!("task {id} was completed twice"));
        }
        let Some(task) = tasks.get(id) else {
            wrong.push(format!("task {id} was completed and is lost"));
            continue;
        };
        let stored = match task.output() {
            Some(Payload::Inline(json)) => json.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        if task.attempt != *attempt || stored != *output {
            wrong.push(format!(
                "task {id} was completed in attempt {attempt} with {output}, and holds {stored} of attempt {}",
                task.attempt
            ));
        }
    }
}

/// A checker that finds nothing wrong must be one that would.
#[tokio::test]
async fn every_breach_is_found() {
    let queue = qo::connect("memory:").await.unwrap();
    let request = super::task();
    let id = request.id.unwrap();
    queue.submit(request).await.unwrap();
    let mut wish = qo::ClaimRequest::new("w".parse().unwrap(), vec!["work".parse().unwrap()]);
    wish.wait_ms = 20_000;
    let lease = queue.claim(&wish).await.unwrap()[0].lease_id.unwrap();
    let output = qo::Json::parse("1").unwrap();
    queue.complete(id, lease, Some(output)).await.unwrap();
    let task = queue.get(id).await.unwrap();
    let notes = || Notes {
        asked: BTreeSet::from([id]),
        acknowledged: vec![id],
        handed_out: vec![(id, 1, lease)],
        completed: vec![(id, 1, "1".to_owned())],
        ..Notes::default()
    };
    let tasks = std::slice::from_ref(&task);
    assert_eq!(check(&notes(), tasks), Vec::<String>::new());

    let finds = |wrong: Vec<String>, text: &str| {
        assert!(
            wrong.iter().any(|line| line.contains(text)),
            "{text}: {wrong:?}"
        );
    };
    finds(check(&notes(), &[]), "was acknowledged and is lost");
    finds(check(&Notes::default(), tasks), "nobody submitted");
    finds(
        check(&notes(), &[task.clone(), task.clone()]),
        "listed twice",
    );
    let mut told = notes();
    told.handed_out.push((id, 1, lease));
    finds(check(&told, tasks), "handed out twice");
    let mut told = notes();
    told.handed_out.push((id, 2, lease));
    finds(check(&told, tasks), "is not stored");
    let mut told = notes();
    told.completed.push((id, 1, "1".to_owned()));
    finds(check(&told, tasks), "completed twice");
    let mut told = notes();
    told.completed = vec![(id, 1, "2".to_owned())];
    finds(check(&told, tasks), "and holds 1");
    let mut told = notes();
    told.refused.push((id, 1));
    finds(check(&told, tasks), "told that the lease is lost");
    let mut running = task.clone();
    running.status = Status::Running;
    finds(check(&notes(), &[running]), "in the end");
    let mut skipped = task.clone();
    skipped.attempt = 2;
    finds(check(&notes(), &[skipped]), "the history ends elsewhere");
}
