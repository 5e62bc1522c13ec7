//! Ordering keys: tasks with one key run one at a time, in submit order.

use qo_core::queue_state::{CommandOutcome, Request, WaitsBehind};
use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::{Failure, FailureKind};
use qo_core::{Action, Jitter, Rejection, Status, Submission};

use super::Space;
use crate::support::{at, id, submission};

fn ordered(number: u64, key: &str, on_failure: OnFailure) -> Submission {
    Submission {
        ordering: Some(OrderingRule {
            key: key.parse().unwrap(),
            on_failure,
        }),
        ..submission(number)
    }
}

fn three() -> Space {
    let mut space = Space::new();
    for number in 1..=3 {
        space.submit(ordered(number, "k", OnFailure::Continue), at(0));
    }
    space
}

impl Space {
    fn act(&mut self, number: u64, action: Action) -> CommandOutcome {
        let id = id(number);
        self.apply(Request::Task { id, action }, at(10))
    }

    fn held(&self, number: u64) -> qo_core::LeaseId {
        self.state.task(id(number)).unwrap().lease_id.unwrap()
    }

    fn complete(&mut self, number: u64) {
        let lease = self.held(number);
        self.act(
            number,
            Action::Complete {
                lease,
                output: None,
            },
        );
    }

    fn fail_for_good(&mut self, number: u64) {
        let lease = self.held(number);
        let failure = Failure {
            kind: FailureKind::Permanent,
            error: "broken".into(),
        };
        let jitter = Jitter::NONE;
        self.act(
            number,
            Action::Fail {
                lease,
                failure,
                jitter,
            },
        );
    }
}

#[test]
fn tasks_of_one_key_run_one_at_a_time_in_submit_order() {
    let mut space = three();
    space.submit(ordered(4, "other", OnFailure::Continue), at(0));
    space.submit(submission(5), at(0));
    assert_eq!(space.claim(&[], &[], 9, at(10)), [id(1), id(4), id(5)]);
    assert!(space.claim(&[], &[], 9, at(10)).is_empty());
    assert_eq!(
        space.state.waits_behind(id(3)),
        Some(WaitsBehind {
            head: id(1),
            ahead: 2,
            is_stopped: false
        })
    );
    assert_eq!(space.state.waits_behind(id(1)), None);
    for number in 1..=3 {
        space.complete(number);
        let next: Vec<_> = (number < 3).then(|| id(number + 1)).into_iter().collect();
        assert_eq!(space.claim(&[], &[], 9, at(10)), next);
    }
}

#[test]
fn the_same_key_in_two_queues_is_two_lines() {
    let mut space = three();
    let elsewhere = Submission {
        queue: "bulk".parse().unwrap(),
        ..ordered(4, "k", OnFailure::Continue)
    };
    space.submit(elsewhere, at(0));
    assert_eq!(space.claim(&[], &[], 9, at(10)), [id(1), id(4)]);
}

#[test]
fn a_priority_does_not_overtake_within_a_key() {
    let mut space = Space::new();
    space.submit(ordered(1, "k", OnFailure::Continue), at(0));
    let urgent = Submission {
        priority: 0,
        ..ordered(2, "k", OnFailure::Continue)
    };
    space.submit(urgent, at(0));
    assert_eq!(space.claim(&[], &[], 9, at(10)), [id(1)]);
}

#[test]
fn a_retry_a_release_a_snooze_and_a_delay_keep_their_place() {
    for step in 0..3 {
        let mut space = three();
        assert_eq!(space.claim(&[], &[], 1, at(10)), [id(1)]);
        let lease = space.held(1);
        let action = match step {
            0 => Action::Release { lease },
            1 => Action::Snooze {
                lease,
                delay_ms: 60_000,
            },
            _ => Action::Fail {
                lease,
                failure: Failure {
                    kind: FailureKind::Retryable,
                    error: "again".into(),
                },
                jitter: Jitter::NONE,
            },
        };
        space.act(1, action);
        if step > 0 {
            assert!(space.claim(&[], &[], 9, at(10)).is_empty(), "{step}");
        }
        assert_eq!(space.claim(&[], &[], 9, at(100_000)), [id(1)], "{step}");
    }
    let mut space = Space::new();
    let later = Submission {
        available_at: Some(at(50_000)),
        ..ordered(1, "k", OnFailure::Continue)
    };
    space.submit(later, at(0));
    space.submit(ordered(2, "k", OnFailure::Continue), at(0));
    assert!(space.claim(&[], &[], 9, at(10)).is_empty());
    assert_eq!(space.claim(&[], &[], 9, at(50_000)), [id(1)]);
}

#[test]
fn a_task_that_leaves_the_line_lets_the_next_one_run() {
    let mut space = three();
    space.act(2, Action::Cancel { reason: None });
    space.act(1, Action::Cancel { reason: None });
    assert_eq!(space.claim(&[], &[], 9, at(10)), [id(3)]);

    let mut space = Space::new();
    let perishable = Submission {
        expires_at: Some(at(5)),
        ..ordered(1, "k", OnFailure::Continue)
    };
    space.submit(perishable, at(0));
    space.submit(ordered(2, "k", OnFailure::Continue), at(0));
    // The same claim cancels the expired head and takes the next one.
    assert_eq!(space.claim(&[], &[], 1, at(10)), [id(2)]);
}

#[test]
fn a_failure_lets_the_next_one_run_unless_it_stops_the_key() {
    let mut space = three();
    space.claim(&[], &[], 1, at(10));
    space.fail_for_good(1);
    assert_eq!(space.claim(&[], &[], 9, at(10)), [id(2)]);

    for (number, replayed) in [(1, true), (2, false)] {
        let mut space = Space::new();
        space.submit(ordered(1, "k", OnFailure::Stop), at(0));
        space.submit(ordered(2, "k", OnFailure::Stop), at(0));
        space.claim(&[], &[], 1, at(10));
        space.fail_for_good(1);
        assert!(space.claim(&[], &[], 9, at(10)).is_empty());
        let waits = space.state.waits_behind(id(2)).unwrap();
        assert!(waits.is_stopped && waits.head == id(1), "{waits:?}");
        let stops = |action| CommandOutcome::Rejected(Rejection::StopsLine { action });
        assert_eq!(space.act(1, Action::Archive), stops("archive"));
        assert_eq!(space.apply(Request::Purge(id(1)), at(10)), stops("purge"));
        assert_eq!(space.state.forget(id(1)), None, "it would be forgotten");
        assert_eq!(space.state.ended().len(), 0);
        let action = if replayed {
            Action::Replay
        } else {
            Action::Cancel { reason: None }
        };
        assert!(matches!(
            space.act(1, action),
            CommandOutcome::Applied { .. }
        ));
        assert_eq!(space.claim(&[], &[], 9, at(20)), [id(number)]);
    }
}

#[test]
fn a_replayed_task_joins_the_line_at_its_end() {
    let mut space = three();
    space.claim(&[], &[], 1, at(10));
    space.complete(1);
    space.act(1, Action::Replay);
    for number in [2, 3, 1] {
        assert_eq!(space.claim(&[], &[], 9, at(20)), [id(number)]);
        space.complete(number);
    }
}

#[test]
fn a_line_is_the_same_after_a_load_in_any_order() {
    let mut space = Space::new();
    for number in [5, 1, 4, 2] {
        space.submit(ordered(number, "k", OnFailure::Stop), at(0));
    }
    space.claim(&[], &[], 1, at(10));
    space.complete(5);
    space.act(5, Action::Replay);
    space.claim(&[], &[], 1, at(10));
    space.fail_for_good(1);
    let tasks: Vec<_> = space.state.tasks().cloned().collect();
    for order in [tasks.clone(), tasks.into_iter().rev().collect()] {
        let mut loaded = Space::new();
        for task in order {
            assert!(loaded.state.load(task));
        }
        loaded.state.check_consistency().unwrap();
        assert!(loaded.claim(&[], &[], 9, at(20)).is_empty(), "1 stops it");
        loaded.act(1, Action::Replay);
        loaded.submit(ordered(6, "k", OnFailure::Stop), at(20));
        for number in [1, 4, 2, 5, 6] {
            assert_eq!(loaded.claim(&[], &[], 9, at(20)), [id(number)]);
            loaded.complete(number);
        }
        assert_eq!(loaded.state.counters().total().of(Status::Completed), 5);
    }
}
