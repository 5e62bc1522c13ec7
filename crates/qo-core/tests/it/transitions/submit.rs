use qo_core::limits::{INLINE_PAYLOAD_MAX_BYTES, TAGS_MAX};
use qo_core::transition::submit;
use qo_core::{Payload, PayloadRef, Rejection, RetryPolicy, Sha256, Status, Submission};

use crate::support::{at, id, json, op, pending, submission};

#[test]
fn a_new_task_is_pending_due_immediately_and_has_the_defaults() {
    let task = pending();
    assert_eq!(task.id, id(1));
    assert_eq!(task.shard, id(1).shard());
    assert_eq!(task.status, Status::Pending);
    assert_eq!(
        (task.attempt, task.retry_count, task.max_retries),
        (0, 0, 3)
    );
    assert_eq!(
        (task.priority, task.queue.as_str(), task.timeout_seconds),
        (5, "default", 300)
    );
    assert_eq!(
        (task.available_at, task.created_at, task.updated_at),
        (at(0), at(0), at(0))
    );
    assert_eq!((task.revision, task.op_id), (1, Some(op(1))));
    assert_eq!(task.input(), json(r#"{"to":"a@example.org"}"#));
    assert!(task.is_available(at(0)));
    assert_eq!(task.events.len(), 1);
    assert_eq!(
        (task.events[0].from, task.events[0].to),
        (None, Status::Pending)
    );
}

#[test]
fn a_past_due_time_means_now_and_a_future_one_is_kept() {
    let due = |available_at| {
        let submission = Submission {
            available_at,
            ..submission(1)
        };
        submit(submission, op(1), at(0)).unwrap().available_at
    };
    assert_eq!(due(Some(at(-5_000))), at(0));
    assert_eq!(due(Some(at(5_000))), at(5_000));
}

fn rejected(change: impl FnOnce(&mut Submission)) -> Rejection {
    let mut submission = submission(1);
    change(&mut submission);
    submit(submission, op(1), at(0)).unwrap_err()
}

#[test]
fn out_of_bounds_fields_are_rejected_by_name() {
    let field = |rejection| match rejection {
        Rejection::OutOfBounds { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(rejected(|s| s.priority = 10)), "priority");
    assert_eq!(
        field(rejected(|s| s.timeout_seconds = Some(0))),
        "timeout_seconds"
    );
    assert_eq!(
        field(rejected(|s| s.timeout_seconds = Some(u64::MAX))),
        "timeout_seconds"
    );
    assert_eq!(
        field(rejected(|s| s.max_retries = Some(u32::MAX))),
        "max_retries"
    );
    assert_eq!(
        field(rejected(
            |s| s.tags = vec!["x".parse().unwrap(); TAGS_MAX + 1]
        )),
        "tags"
    );
    assert_eq!(
        field(rejected(|s| s.expires_at = Some(at(0)))),
        "expires_at"
    );
    assert!(matches!(
        rejected(|s| s.retry_policy = RetryPolicy {
            multiplier: 0.1,
            ..RetryPolicy::default()
        }),
        Rejection::RetryPolicy(_)
    ));
}

#[test]
fn inline_inputs_are_bounded_and_stored_ones_may_be_larger() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let fits = Submission {
        input: json(&text(INLINE_PAYLOAD_MAX_BYTES)),
        ..submission(1)
    };
    assert!(submit(fits, op(1), at(0)).is_ok());
    let size = INLINE_PAYLOAD_MAX_BYTES as u64 + 1;
    assert_eq!(
        rejected(|s| s.input = json(&text(INLINE_PAYLOAD_MAX_BYTES + 1))),
        Rejection::PayloadTooLarge {
            field: "input",
            size,
            limit: size - 1
        }
    );
    let stored = Payload::Stored(PayloadRef::new(size, Sha256::from_bytes([7; 32])));
    let task = submit(
        Submission {
            input: stored.clone(),
            ..submission(1)
        },
        op(1),
        at(0),
    )
    .unwrap();
    assert_eq!(task.input(), stored);
}
