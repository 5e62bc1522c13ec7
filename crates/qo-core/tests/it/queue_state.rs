//! The queue state by example.

mod fairness;
mod limits;
mod ordering;
mod settings;
mod uniqueness;

use qo_core::queue_state::{Changes, Claim, CommandOutcome, Request, StateCommand};
use qo_core::transition::Idempotency;
use qo_core::{
    Action, Jitter, PauseNote, PauseTarget, QueueState, Rejection, Status, Submission, TaskId,
    Timestamp,
};

use crate::support::{at, complete, id, lease, op, submission};

struct Space {
    state: QueueState,
    ops: u64,
}

impl Space {
    fn new() -> Self {
        Self {
            state: QueueState::new(),
            ops: 0,
        }
    }

    fn apply(&mut self, request: Request, now: Timestamp) -> CommandOutcome {
        self.apply_and_report(request, now).0
    }

    fn apply_and_report(&mut self, request: Request, now: Timestamp) -> (CommandOutcome, Changes) {
        self.ops += 1;
        let op = op(self.ops);
        let result = self.state.apply(StateCommand { op, request }, now);
        self.state.check_consistency().unwrap();
        result
    }

    fn submit(&mut self, submission: Submission, now: Timestamp) -> CommandOutcome {
        self.apply(Request::Submit(Box::new(submission)), now)
    }

    fn claim(
        &mut self,
        queues: &[&str],
        types: &[&str],
        count: u64,
        now: Timestamp,
    ) -> Vec<TaskId> {
        let first = self.ops * 1_000;
        let claim = Claim {
            worker: "w-1".parse().unwrap(),
            queues: queues.iter().map(|name| name.parse().unwrap()).collect(),
            types: types.iter().map(|name| name.parse().unwrap()).collect(),
            leases: (first..first + count).map(lease).collect(),
            lease_ms: 60_000,
        };
        match self.apply(Request::Claim(claim), now) {
            CommandOutcome::Claimed(claimed) => {
                claimed.into_iter().map(|claimed| claimed.id).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn claims_follow_priority_then_due_time_then_submit_order() {
    let mut space = Space::new();
    let mut submit = |number, priority, millis| {
        let available_at = Some(at(millis));
        space.submit(
            Submission {
                priority,
                available_at,
                ..submission(number)
            },
            at(0),
        );
    };
    submit(1, 5, 20);
    submit(2, 5, 10);
    submit(3, 9, 0);
    submit(4, 0, 30);
    submit(5, 5, 10);
    submit(6, 0, 1_000);
    assert_eq!(
        space.claim(&[], &[], 10, at(50)),
        [id(4), id(2), id(5), id(1), id(3)]
    );
    assert_eq!(space.claim(&[], &[], 10, at(999)), []);
    assert_eq!(space.claim(&[], &[], 10, at(1_000)), [id(6)]);
}

#[test]
fn unrequested_tasks_do_not_block_others() {
    let mut space = Space::new();
    for number in 0..50 {
        let foreign = Submission {
            task_type: "foreign".parse().unwrap(),
            priority: 0,
            ..submission(number)
        };
        space.submit(foreign, at(0));
        let elsewhere = Submission {
            queue: "other".parse().unwrap(),
            priority: 0,
            ..submission(100 + number)
        };
        space.submit(elsewhere, at(0));
    }
    space.submit(submission(1_000), at(0));
    assert_eq!(
        space.claim(&["default"], &["send_email", "send_email"], 10, at(0)),
        [id(1_000)]
    );
    assert_eq!(space.claim(&["missing"], &[], 10, at(0)), []);
    assert_eq!(space.claim(&["other", "other"], &[], 100, at(0)).len(), 50);
}

#[test]
fn a_paused_queue_is_skipped() {
    let mut space = Space::new();
    space.submit(submission(1), at(0));
    let queue = || PauseTarget::Queue("default".parse().unwrap());
    let pause = || Request::Pause(queue(), PauseNote::default());
    assert_eq!(
        space.apply(pause(), at(0)),
        CommandOutcome::PauseSet { changed: true }
    );
    assert_eq!(
        space.apply(pause(), at(0)),
        CommandOutcome::PauseSet { changed: false }
    );
    assert_eq!(space.claim(&[], &[], 1, at(0)), []);
    assert!(space.state.pauses().get(&queue()).is_some());
    space.apply(Request::Resume(queue()), at(0));
    assert_eq!(space.claim(&[], &[], 1, at(0)), [id(1)]);
}

#[test]
fn a_paused_type_is_skipped_in_every_queue() {
    for names in [
        [&[][..], &[][..]],
        [&["default", "other"], &[]],
        [&[], &["mail", "report"]],
        [&["default", "other"], &["mail", "report"]],
    ] {
        let mut space = Space::new();
        for (number, queue, task_type) in [
            (1, "default", "mail"),
            (2, "other", "mail"),
            (3, "default", "report"),
            (4, "other", "report"),
        ] {
            let one = Submission {
                queue: queue.parse().unwrap(),
                task_type: task_type.parse().unwrap(),
                ..submission(number)
            };
            space.submit(one, at(0));
        }
        let target = || PauseTarget::Type("mail".parse().unwrap());
        space.apply(Request::Pause(target(), PauseNote::default()), at(0));
        let [queues, types] = names;
        assert_eq!(space.claim(queues, types, 10, at(0)), [id(3), id(4)]);
        space.apply(Request::Resume(target()), at(0));
        assert_eq!(space.claim(queues, types, 10, at(0)), [id(1), id(2)]);
    }
}

#[test]
fn one_task_per_id_and_per_key_in_its_window() {
    let mut space = Space::new();
    let keyed = |number, until| Submission {
        idempotency: Some(Idempotency {
            key: "order-7".parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Queue,
            until,
        }),
        ..submission(number)
    };
    let submitted = |number, duplicate| CommandOutcome::Submitted {
        id: id(number),
        duplicate,
    };
    assert_eq!(
        space.submit(keyed(1, Some(at(1_000))), at(0)),
        submitted(1, false)
    );
    assert_eq!(space.submit(keyed(2, None), at(999)), submitted(1, true));
    assert_eq!(space.submit(keyed(1, None), at(2_000)), submitted(1, true));
    assert_eq!(space.submit(keyed(3, None), at(1_000)), submitted(3, false));
    assert_eq!(
        space.submit(keyed(4, None), at(i64::from(u32::MAX))),
        submitted(3, true)
    );
    let other_queue = Submission {
        queue: "other".parse().unwrap(),
        ..keyed(5, None)
    };
    assert_eq!(space.submit(other_queue, at(2_000)), submitted(5, false));
    assert_eq!(space.state.len(), 3);
}

#[test]
fn a_rejected_command_may_be_repeated() {
    let mut space = Space::new();
    let act = |action| Request::Task { id: id(1), action };
    let missing = CommandOutcome::Rejected(Rejection::NotFound { id: id(1) });
    assert_eq!(space.apply(act(Action::Replay), at(0)), missing);
    space.submit(submission(1), at(0));
    space.claim(&[], &[], 1, at(0));
    let lost = space.apply(act(complete(424_242)), at(0));
    assert!(matches!(
        lost,
        CommandOutcome::Rejected(Rejection::LeaseLost { .. })
    ));
}

#[test]
fn leases_and_expiries_end_by_command() {
    let mut space = Space::new();
    for number in 0..5 {
        space.submit(submission(number), at(0));
    }
    let perishable = Submission {
        expires_at: Some(at(70_000)),
        priority: 9,
        ..submission(9)
    };
    space.submit(perishable, at(0));
    assert_eq!(space.claim(&[], &[], 5, at(0)).len(), 5);
    assert_eq!(space.state.next_expiry(0), Some(at(60_001)));
    let expire = |limit| Request::ExpireLeases {
        lease_margin_ms: 0,
        limit,
        jitter: Jitter::NONE,
    };
    assert_eq!(
        space.apply(expire(10), at(60_000)),
        CommandOutcome::Expired(vec![])
    );
    let CommandOutcome::Expired(first) = space.apply(expire(2), at(60_001)) else {
        panic!()
    };
    assert_eq!(first.len(), 2);
    let CommandOutcome::Expired(rest) = space.apply(expire(10), at(70_000)) else {
        panic!()
    };
    assert_eq!(rest.len(), 4);
    assert_eq!(space.state.task(id(9)).unwrap().status, Status::Cancelled);
    let counts = space.state.counters().total();
    assert_eq!(
        (
            counts.of(Status::Pending),
            counts.of(Status::Cancelled),
            counts.total()
        ),
        (5, 1, 6)
    );
    assert_eq!(space.state.next_expiry(0), None);
}

#[test]
fn a_margin_delays_the_expiry_of_leases_but_not_of_pending_tasks() {
    let mut space = Space::new();
    space.submit(submission(1), at(0));
    space.claim(&[], &[], 1, at(0));
    let perishable = Submission {
        expires_at: Some(at(70_000)),
        ..submission(2)
    };
    space.submit(perishable, at(0));
    assert_eq!(space.state.next_expiry(500), Some(at(60_501)));
    let expire = Request::ExpireLeases {
        limit: 10,
        lease_margin_ms: 30_000,
        jitter: Jitter::NONE,
    };
    let outcome = space.apply(expire.clone(), at(70_000));
    assert_eq!(outcome, CommandOutcome::Expired(vec![id(2)]));
    let outcome = space.apply(expire, at(90_001));
    assert_eq!(outcome, CommandOutcome::Expired(vec![id(1)]));
}

#[test]
fn the_state_reports_due_and_finished_tasks() {
    let mut space = Space::new();
    let later = Submission {
        available_at: Some(at(5_000)),
        ..submission(2)
    };
    space.submit(submission(1), at(0));
    space.submit(later, at(0));
    let queue = qo_core::QueueName::default();
    assert_eq!(space.state.count_due(&[], &[], at(0), 10), 1);
    assert_eq!(space.state.count_due(&[], &[], at(5_000), 10), 2);
    assert_eq!(space.state.count_due(&[], &[], at(5_000), 1), 1);
    assert_eq!(space.state.oldest_due(&queue, at(1)), Some(at(0)));
    assert_eq!(space.state.next_due(at(0)), Some(at(5_000)));
    assert_eq!(space.state.next_due(at(5_000)), None);
    let types: Vec<_> = space.state.counters().types(&queue).collect();
    assert_eq!(
        types.iter().map(|(_, counts)| counts.total()).sum::<u64>(),
        2
    );
    let cancel = Request::Task {
        id: id(1),
        action: qo_core::Action::Cancel { reason: None },
    };
    space.apply(cancel, at(7));
    assert_eq!(space.state.ended().collect::<Vec<_>>(), [(at(7), id(1))]);
    assert_eq!(space.state.tasks_after(Some(id(1))).count(), 1);
    space.state.unload(id(2)).unwrap();
    assert_eq!(space.state.len(), 1);
    space.state.check_consistency().unwrap();
}

#[test]
fn a_claim_cancels_expired_tasks() {
    let mut space = Space::new();
    for number in 0..20 {
        let perishable = Submission {
            expires_at: Some(at(100)),
            priority: 0,
            ..submission(number)
        };
        space.submit(perishable, at(0));
    }
    space.submit(submission(99), at(0));
    assert_eq!(space.claim(&[], &[], 1, at(100)), [id(99)]);
    assert_eq!(space.state.counters().total().of(Status::Cancelled), 20);
}

#[test]
fn only_finished_tasks_are_purged_or_forgotten() {
    let mut space = Space::new();
    space.submit(submission(1), at(0));
    let alive = Rejection::WrongStatus {
        action: "purge",
        status: Status::Pending,
    };
    assert_eq!(
        space.apply(Request::Purge(id(1)), at(0)),
        CommandOutcome::Rejected(alive)
    );
    assert_eq!(space.state.forget(id(1)), None);
    space.apply(
        Request::Task {
            id: id(1),
            action: Action::Cancel { reason: None },
        },
        at(0),
    );
    let task = std::sync::Arc::unwrap_or_clone(space.state.forget(id(1)).unwrap());
    assert!(space.state.is_empty());
    assert!(space.state.load(task.clone()));
    assert!(!space.state.load(task));
    assert_eq!(
        space.apply(Request::Purge(id(1)), at(0)),
        CommandOutcome::Purged { id: id(1) }
    );
    assert!(space.state.is_empty());
    space.state.check_consistency().unwrap();
}

#[test]
fn a_loaded_state_serves_in_the_same_order() {
    let mut space = Space::new();
    for number in [5, 3, 9, 1] {
        space.submit(submission(number), at(0));
    }
    let mut loaded = Space::new();
    for task in space.state.tasks() {
        assert!(loaded.state.load(task.clone()));
    }
    loaded.submit(submission(2), at(0));
    assert_eq!(
        loaded.claim(&[], &[], 9, at(0)),
        [id(5), id(3), id(9), id(1), id(2)]
    );
}

#[test]
fn an_invalid_claim_is_rejected_as_a_whole() {
    let mut space = Space::new();
    space.submit(submission(1), at(0));
    let claim = Claim {
        worker: "w-1".parse().unwrap(),
        queues: vec![],
        types: vec![],
        leases: vec![lease(1)],
        lease_ms: 0,
    };
    let outcome = space.apply(Request::Claim(claim), at(0));
    assert!(matches!(
        outcome,
        CommandOutcome::Rejected(Rejection::OutOfBounds { .. })
    ));
    assert_eq!(space.state.task(id(1)).unwrap().status, Status::Pending);
}
