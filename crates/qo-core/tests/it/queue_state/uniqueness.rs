//! Keys that are held for part of a task's life.

use qo_core::queue_state::{Changes, CommandOutcome, Request};
use qo_core::task::{
    EventAction, IdempotencyScope, KeyHold, OnConflict, Uniqueness, decode, decode_compact, encode,
    encode_compact,
};
use qo_core::transition::Idempotency;
use qo_core::{Action, Payload, Rejection, Status, Submission, Task, TaskId};

use crate::support::{at, claim, complete, id, json, submission};

/// A queue whose changes are looked at.
struct Space(super::Space);

impl Space {
    fn new() -> Self {
        Self(super::Space::new())
    }

    fn apply(&mut self, request: Request, now: i64) -> (CommandOutcome, Changes) {
        self.0.apply_and_report(request, at(now))
    }

    fn submit(&mut self, submission: Submission, now: i64) -> (TaskId, bool, Changes) {
        match self.apply(Request::Submit(Box::new(submission)), now) {
            (CommandOutcome::Submitted { id, duplicate }, changes) => (id, duplicate, changes),
            other => panic!("{other:?}"),
        }
    }

    fn act(&mut self, number: u64, action: Action, now: i64) {
        let id = id(number);
        let (outcome, _) = self.apply(Request::Task { id, action }, now);
        assert_eq!(outcome, CommandOutcome::Applied { id });
    }

    fn task(&self, number: u64) -> &Task {
        self.0.state.task(id(number)).unwrap()
    }
}

fn keyed(number: u64, hold: KeyHold, on_conflict: OnConflict) -> Submission {
    Submission {
        idempotency: Some(Idempotency {
            key: "shop-7".parse().unwrap(),
            scope: IdempotencyScope::Queue,
            until: None,
        }),
        uniqueness: Uniqueness { hold, on_conflict },
        ..submission(number)
    }
}

#[test]
fn a_key_is_held_as_long_as_the_task_says() {
    for (hold, frees_at_start) in [(KeyHold::Waiting, true), (KeyHold::Unfinished, false)] {
        let mut space = Space::new();
        let submit = |number| keyed(number, hold, OnConflict::Keep);
        assert_eq!(space.submit(submit(1), 0).0, id(1));
        let (found, duplicate, changes) = space.submit(submit(2), 0);
        assert_eq!((found, duplicate, changes.is_empty()), (id(1), true, true));
        space.act(1, claim(1), 0);
        let (found, duplicate, _) = space.submit(submit(3), 0);
        assert_eq!(
            (found == id(3), duplicate),
            (frees_at_start, !frees_at_start)
        );
        space.act(1, complete(1), 0);
        if !frees_at_start {
            assert_eq!(space.submit(submit(3), 0).0, id(3));
        }
        // A replay of the first does not take the key back.
        space.act(1, Action::Replay, 1);
        assert_eq!(space.submit(submit(4), 1).0, id(3));
        space.act(3, Action::Cancel { reason: None }, 2);
        assert_eq!(space.submit(submit(4), 2).0, id(4));
    }
}

#[test]
fn a_window_ends_a_hold_sooner() {
    let mut space = Space::new();
    let submit = |number, now: i64| {
        let mut submission = keyed(number, KeyHold::Waiting, OnConflict::Keep);
        submission.idempotency.as_mut().unwrap().until = Some(at(now + 1_000));
        submission
    };
    space.submit(submit(1, 0), 0);
    assert_eq!(space.submit(submit(2, 999), 999).0, id(1));
    assert_eq!(space.submit(submit(2, 1_000), 1_000).0, id(2));
}

#[test]
fn a_task_that_has_expired_holds_no_key() {
    let mut space = Space::new();
    let perishable = Submission {
        expires_at: Some(at(1_000)),
        ..keyed(1, KeyHold::Waiting, OnConflict::Keep)
    };
    space.submit(perishable, 0);
    let next = keyed(2, KeyHold::Waiting, OnConflict::Keep);
    assert_eq!(space.submit(next.clone(), 999).0, id(1));
    assert_eq!(space.submit(next, 1_000).0, id(2));
}

#[test]
fn a_waiting_task_gets_a_new_input() {
    let mut space = Space::new();
    let submit = |number, text: &str| Submission {
        input: json(text),
        ..keyed(number, KeyHold::Kept, OnConflict::Replace)
    };
    space.submit(submit(1, "1"), 0);
    let (found, duplicate, changes) = space.submit(submit(2, "2"), 5);
    assert_eq!((found, duplicate), (id(1), true));
    assert_eq!((changes.tasks, changes.inputs), (vec![id(1)], vec![id(1)]));
    let task = space.task(1);
    assert_eq!((task.input(), task.revision), (json("2"), 2));
    assert_eq!(task.available_at, at(0));
    let event = task.events.iter().next_back().unwrap();
    assert_eq!(
        (event.action, event.to),
        (Some(EventAction::Amended), Status::Pending)
    );
    // The same again, and the first submit again, change nothing.
    assert!(space.submit(submit(3, "2"), 6).2.is_empty());
    assert!(space.submit(submit(1, "1"), 6).2.is_empty());
    // A task that has started keeps its input, also while it waits for a retry.
    space.act(1, claim(1), 7);
    assert!(space.submit(submit(3, "3"), 8).2.is_empty());
    let lease = crate::support::lease(1);
    space.act(1, Action::Release { lease }, 9);
    assert!(space.submit(submit(3, "3"), 9).2.is_empty());
    assert_eq!(space.task(1).input(), json("2"));
}

#[test]
fn a_waiting_task_is_postponed_and_never_hastened() {
    let mut space = Space::new();
    let submit = |number, due| Submission {
        available_at: Some(at(due)),
        ..keyed(number, KeyHold::Waiting, OnConflict::Postpone)
    };
    space.submit(submit(1, 1_000), 0);
    let (_, _, changes) = space.submit(submit(2, 1_500), 500);
    assert_eq!((changes.tasks, changes.inputs), (vec![id(1)], vec![]));
    assert_eq!(space.task(1).available_at, at(1_500));
    assert!(space.submit(submit(2, 1_400), 600).2.is_empty());
    let none = |space: &mut Space, now| {
        let due = space.0.state.due(&[], &[], at(now), 10);
        due.is_empty()
    };
    assert!(none(&mut space, 1_499));
    assert!(!none(&mut space, 1_500));
    // A due task that nobody has claimed is postponed too.
    space.submit(submit(2, 3_000), 2_000);
    assert!(none(&mut space, 2_999));
    assert_eq!(space.0.state.len(), 1);
}

#[test]
fn invalid_changes_are_rejected_before_anything_changes() {
    let mut space = Space::new();
    let rejected = |space: &mut Space, submission: Submission, name: &str| {
        let request = Request::Submit(Box::new(submission));
        let (outcome, changes) = space.apply(request, 0);
        assert!(changes.is_empty());
        match outcome {
            CommandOutcome::Rejected(Rejection::OutOfBounds { field, .. }) => {
                assert_eq!(field, name);
            }
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..2 {
        // Whether the key is free or not.
        let now = keyed(2, KeyHold::Waiting, OnConflict::Postpone);
        rejected(&mut space, now, "available_at");
        let reference = qo_core::PayloadRef::new(70_000, qo_core::Sha256::from_bytes([7; 32]));
        let large = Submission {
            input: Payload::Stored(reference),
            ..keyed(2, KeyHold::Waiting, OnConflict::Replace)
        };
        rejected(&mut space, large, "input");
        let no_key = Submission {
            idempotency: None,
            ..keyed(2, KeyHold::Waiting, OnConflict::Keep)
        };
        rejected(&mut space, no_key, "idempotency_key");
        space.submit(keyed(1, KeyHold::Waiting, OnConflict::Keep), 0);
    }
    assert_eq!(space.0.state.len(), 1);
}

#[test]
fn an_older_version_leaves_such_a_task_alone() {
    let mut space = Space::new();
    space.submit(keyed(1, KeyHold::Waiting, OnConflict::Keep), 0);
    let task = space.task(1);
    assert_eq!(task.min_reader, 3);
    let text = encode(task).unwrap();
    assert_eq!(decode(&text).unwrap(), *task);
    let compact = encode_compact(task, true).unwrap();
    assert!(compact.len() < text.len() / 2, "it has a compact form");
    assert_eq!(decode_compact(&compact).unwrap(), *task);
    let mut kept = Space::new();
    kept.submit(keyed(1, KeyHold::Kept, OnConflict::Replace), 0);
    assert_eq!(kept.task(1).min_reader, 0);
}
