//! Test helpers.

use qo_core::transition::{Failure, FailureKind, submit};
use qo_core::{
    Action, Command, Jitter, Json, LeaseId, OpId, Payload, Status, Submission, Task, TaskId,
    Timestamp,
};

/// The time `millis` milliseconds after the start of the tests.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis)
}

pub(crate) fn id(number: u64) -> TaskId {
    TaskId::from_random(u128::from(number) << 64 | 7)
}

pub(crate) fn lease(number: u64) -> LeaseId {
    LeaseId::from_random(u128::from(number) << 64 | 8)
}

pub(crate) fn op(number: u64) -> OpId {
    OpId::from_random(u128::from(number) << 64 | 9)
}

pub(crate) fn json(text: &str) -> Payload {
    Payload::Inline(Json::parse(text).unwrap())
}

pub(crate) fn submission(number: u64) -> Submission {
    Submission::new(
        id(number),
        "send_email".parse().unwrap(),
        json(r#"{"to":"a@example.org"}"#),
    )
}

/// A task submitted at time 0.
pub(crate) fn pending() -> Task {
    submit(submission(1), op(1), at(0)).unwrap()
}

/// A task claimed with lease 1 for 60 s at time 0.
pub(crate) fn running() -> Task {
    after(pending(), claim(1))
}

/// A task with this status.
pub(crate) fn in_status(status: Status) -> Task {
    match status {
        Status::Pending => pending(),
        Status::Running => running(),
        Status::Completed => after(running(), complete(1)),
        Status::Failed => after(running(), fail(1, FailureKind::Permanent)),
        Status::Cancelled => after(pending(), Action::Cancel { reason: None }),
        Status::Archived => after(in_status(Status::Failed), Action::Archive),
    }
}

/// The task after an action at time 0 that must be accepted.
pub(crate) fn after(mut task: Task, action: Action) -> Task {
    let number = task.revision + 100;
    task.apply(
        Command {
            op: op(number),
            action,
        },
        at(0),
    )
    .unwrap();
    task
}

pub(crate) fn claim(number: u64) -> Action {
    Action::Claim {
        worker: "w-1".parse().unwrap(),
        lease: lease(number),
        lease_ms: 60_000,
    }
}

pub(crate) fn complete(number: u64) -> Action {
    Action::Complete {
        lease: lease(number),
        output: Some(json("42")),
    }
}

pub(crate) fn fail(number: u64, kind: FailureKind) -> Action {
    Action::Fail {
        lease: lease(number),
        failure: Failure {
            kind,
            error: "it broke".into(),
        },
        jitter: Jitter::NONE,
    }
}

/// A running task that uses every field of the record.
pub(crate) fn full() -> Task {
    use qo_core::transition::{Idempotency, ProgressReport};
    let submission = Submission {
        expires_at: Some(at(1_000_000)),
        tags: vec!["customer-7".parse().unwrap()],
        idempotency: Some(Idempotency {
            key: "order 7".parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Type,
            until: Some(at(5_000)),
        }),
        ordering: Some(qo_core::task::OrderingRule {
            key: "customer 7".parse().unwrap(),
            on_failure: qo_core::task::OnFailure::Stop,
        }),
        limit_key: Some("account-7".parse().unwrap()),
        fairness_group: Some("tenant-7".parse().unwrap()),
        ..submission(1)
    };
    let report = ProgressReport {
        percent: 50.0,
        message: Some("half way".into()),
    };
    let task = submit(submission, op(1), at(0)).unwrap();
    [
        claim(1),
        Action::Progress {
            lease: lease(1),
            report,
        },
        Action::Cancel {
            reason: Some("changed my mind".into()),
        },
    ]
    .into_iter()
    .fold(task, after)
}
