//! The stored form: round trips, unknown fields, hostile bytes.

use proptest::prelude::*;
use qo_core::limits::{COUNT_MAX, RECORD_MAX_BYTES};
use qo_core::task::{DecodeError, READER, decode, decode_compact, encode, encode_compact};
use qo_core::transition::FailureKind;
use qo_core::{Action, Command, Jitter, Status, Task};

use crate::support::{at, claim, complete, fail, full, in_status, lease, op};

#[test]
fn every_status_round_trips() {
    for status in Status::ALL {
        let task = in_status(status);
        assert_eq!(decode(&encode(&task).unwrap()).unwrap(), task);
    }
}

#[test]
fn the_compact_form_round_trips_and_is_much_smaller() {
    for task in Status::ALL.map(in_status).into_iter().chain([full()]) {
        let bytes = encode_compact(&task, true).unwrap();
        assert_eq!(bytes[0], 1);
        assert_eq!(decode_compact(&bytes).unwrap(), task);
        let json = encode(&task).unwrap();
        assert!(
            2 * bytes.len() < json.len(),
            "{} of {}",
            bytes.len(),
            json.len()
        );
        // The JSON form can be read in its place.
        assert_eq!(decode_compact(&json).unwrap(), task);
    }
}

#[test]
fn a_compact_record_without_its_input_gets_it_back() {
    let task = full();
    let input = task.inline_input().unwrap().clone();
    let without = decode_compact(&encode_compact(&task, false).unwrap()).unwrap();
    assert_eq!(without.inline_input(), None);
    assert_eq!(without.with_input(input), task);
}

#[test]
fn fields_of_later_versions_survive_the_compact_form() {
    let mut record: serde_json::Value = serde_json::from_slice(&encode(&full()).unwrap()).unwrap();
    for place in ["", "/retry_policy", "/progress", "/events/0"] {
        let mut changed = record.clone();
        changed.pointer_mut(place).unwrap()["later"] = serde_json::json!([1, "x"]);
        let task = decode(changed.to_string().as_bytes()).unwrap();
        let again = decode_compact(&encode_compact(&task, true).unwrap()).unwrap();
        assert_eq!(again, task, "{place:?}");
        let without = decode_compact(&encode_compact(&task, false).unwrap()).unwrap();
        assert_eq!(without.inline_input(), None);
    }
    record["later"] = serde_json::json!(1);
    let task = decode(record.to_string().as_bytes()).unwrap();
    assert_eq!(encode_compact(&task, true).unwrap()[0], b'{');
}

#[test]
fn a_truncated_or_extended_compact_record_is_rejected() {
    let bytes = encode_compact(&full(), true).unwrap();
    for end in 0..bytes.len() {
        assert!(decode_compact(&bytes[..end]).is_err(), "{end}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(decode_compact(&longer).is_err());
    let huge = vec![1; RECORD_MAX_BYTES + 1];
    assert!(matches!(
        decode_compact(&huge),
        Err(DecodeError::TooLarge { .. })
    ));
}

#[test]
fn the_record_has_the_documented_field_names() {
    let task = full();
    let record: serde_json::Value = serde_json::from_slice(&encode(&task).unwrap()).unwrap();
    for name in [
        "id",
        "task_type",
        "shard",
        "status",
        "available_at",
        "lease_expires_at",
        "input",
        "timeout_seconds",
        "max_retries",
        "retry_count",
        "retry_policy",
        "created_at",
        "updated_at",
        "worker_id",
        "lease_id",
        "attempt",
        "last_error",
        "revision",
        "op_id",
        "events",
        "priority",
        "queue",
        "idempotency_key",
        "expires_at",
        "tags",
        "progress",
        "cancel_requested",
    ] {
        assert!(
            record.get(name).is_some(),
            "{name} is missing in {record:#}"
        );
    }
    assert_eq!(record["status"], "running");
    assert_eq!(record["created_at"], "2027-01-15T08:00:00.000Z");
    let done = encode(&in_status(Status::Completed)).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&done).unwrap();
    assert_eq!(record["output"], 42);
    assert!(record.get("completed_at").is_some());
}

#[test]
fn a_minimal_record_is_accepted() {
    let text = r#"{
        "id": "550e8400-e29b-41d4-a716-446655440000", "task_type": "send_email", "shard": "5", "status": "pending",
        "available_at": "2026-01-01T00:00:00Z", "lease_expires_at": null, "input": null, "output": null,
        "timeout_seconds": 60, "max_retries": 1, "retry_count": 0,
        "retry_policy": {"initial_interval_ms": 1, "max_interval_ms": 2, "multiplier": 1.5, "jitter_percent": 0.1},
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "completed_at": null,
        "worker_id": null, "lease_id": null, "attempt": 0, "last_error": null
    }"#;
    let mut task = decode(text.as_bytes()).unwrap();
    assert_eq!(
        (task.priority, task.queue.as_str(), task.revision),
        (5, "default", 0)
    );
    task.apply(
        Command {
            op: op(1),
            action: claim(1),
        },
        at(0),
    )
    .unwrap();
    assert_eq!(task.revision, 1);
}

#[test]
fn unknown_fields_survive_a_read_modify_write_at_every_level() {
    let mut record: serde_json::Value =
        serde_json::from_slice(&encode(&in_status(Status::Running)).unwrap()).unwrap();
    let unknown = serde_json::json!({"deep": [1, {"x": null}], "big": u64::MAX});
    record["from_the_future"] = unknown.clone();
    record["retry_policy"]["curve"] = unknown.clone();
    record["events"][0]["trace"] = unknown.clone();
    let mut task = decode(record.to_string().as_bytes()).unwrap();
    task.apply(
        Command {
            op: op(5),
            action: complete(1),
        },
        at(5),
    )
    .unwrap();
    let written: serde_json::Value = serde_json::from_slice(&encode(&task).unwrap()).unwrap();
    assert_eq!(written["from_the_future"], unknown);
    assert_eq!(written["retry_policy"]["curve"], unknown);
    assert_eq!(written["events"][0]["trace"], unknown);
    assert_eq!(written["status"], "completed");
}

/// A modification of a record.
type Change<'a> = &'a dyn Fn(&mut serde_json::Value);

#[test]
fn inconsistent_records_are_rejected() {
    let with = |status: Status, change: Change| {
        let mut record = serde_json::from_slice(&encode(&in_status(status)).unwrap()).unwrap();
        change(&mut record);
        decode(record.to_string().as_bytes())
    };
    let reference = serde_json::json!({"size": 1, "sha256": "0".repeat(64)});
    let inconsistent: [(Status, Change); 7] = [
        (Status::Pending, &|r| r["shard"] = "f".into()),
        (Status::Pending, &|r| r["priority"] = 10.into()),
        (Status::Pending, &|r| r["status"] = "running".into()),
        (Status::Running, &|r| r["status"] = "completed".into()),
        (Status::Running, &|r| r["attempt"] = 0.into()),
        (Status::Running, &|r| {
            r["lease_id"] = serde_json::Value::Null;
        }),
        (Status::Pending, &|r| r["input_ref"] = reference.clone()),
    ];
    for (status, change) in inconsistent {
        assert!(matches!(
            with(status, change),
            Err(DecodeError::Inconsistent(_))
        ));
    }
    let malformed: [Change; 5] = [
        &|r| r["status"] = 5.into(),
        &|r| r["task_type"] = "../x".into(),
        &|r| r["created_at"] = 5.into(),
        &|r| r["attempt"] = (-1).into(),
        &|r| r["id"] = "no".into(),
    ];
    for change in malformed {
        assert!(matches!(
            with(Status::Pending, change),
            Err(DecodeError::Syntax(_))
        ));
    }
    let huge = vec![b' '; RECORD_MAX_BYTES + 1];
    assert_eq!(
        decode(&huge),
        Err(DecodeError::TooLarge { size: huge.len() })
    );
}

#[test]
fn a_record_from_the_future_is_not_a_damaged_one() {
    let changes: [Change; 7] = [
        &|r| r["min_reader"] = (READER + 1).into(),
        &|r| {
            r["min_reader"] = (READER + 1).into();
            r["created_at"] = "a form of the future".into();
        },
        &|r| r["min_reader"] = "2.0".into(),
        &|r| r["status"] = "hibernating".into(),
        &|r| r["idempotency_scope"] = "galaxy".into(),
        &|r| r["ordering_on_failure"] = "explode".into(),
        &|r| r["events"][0]["to"] = "hibernating".into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut record: serde_json::Value =
            serde_json::from_slice(&encode(&full()).unwrap()).unwrap();
        change(&mut record);
        let bytes = record.to_string().into_bytes();
        for decoded in [decode(&bytes), decode_compact(&bytes)] {
            assert!(
                matches!(decoded, Err(DecodeError::Newer(_))),
                "{number}: {decoded:?}"
            );
        }
        // Half of it is damaged, whoever wrote it.
        assert!(matches!(
            decode(&bytes[..bytes.len() / 2]),
            Err(DecodeError::Syntax(_))
        ));
    }
    let later_form = [&[2], &encode_compact(&full(), true).unwrap()[1..]].concat();
    assert!(matches!(
        decode_compact(&later_form),
        Err(DecodeError::Newer(_))
    ));
}

#[test]
fn the_lowest_reader_of_a_record_survives_a_rewrite() {
    let mut record: serde_json::Value = serde_json::from_slice(&encode(&full()).unwrap()).unwrap();
    record["min_reader"] = READER.into();
    let task = decode(record.to_string().as_bytes()).unwrap();
    let again: serde_json::Value = serde_json::from_slice(&encode(&task).unwrap()).unwrap();
    assert_eq!(again["min_reader"], READER);
    let compact = decode_compact(&encode_compact(&task, true).unwrap()).unwrap();
    assert_eq!(compact, task);
}

/// Applies every action to a task. Anything that was decoded must withstand it.
fn exercise(task: &Task) {
    let lease = task.lease_id.unwrap_or(lease(1));
    for action in [
        claim(1),
        Action::Renew {
            lease,
            lease_ms: 1_000,
        },
        Action::Complete {
            lease,
            output: None,
        },
        fail(1, FailureKind::Retryable),
        Action::Release { lease },
        Action::Snooze {
            lease,
            delay_ms: 1_000,
        },
        Action::ExpireLease {
            jitter: Jitter::NONE,
        },
        Action::Expire,
        Action::Cancel { reason: None },
        Action::RunNow,
        Action::Fence,
        Action::Replay,
        Action::Redrive {
            to: "elsewhere".parse().unwrap(),
        },
        Action::Archive,
        Action::Unarchive,
    ] {
        let mut copy = task.clone();
        if copy.apply(Command { op: op(77), action }, at(0)).is_ok() {
            // The result of a transition must be readable again.
            assert_eq!(decode(&encode(&copy).unwrap()).unwrap(), copy);
            assert_eq!(
                decode_compact(&encode_compact(&copy, true).unwrap()).unwrap(),
                copy
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(task) = decode(&bytes) {
            exercise(&task);
        }
        if let Ok(task) = decode_compact(&[&[1], &bytes[..]].concat()) {
            exercise(&task);
        }
    }

    #[test]
    fn a_damaged_record_is_decoded_or_rejected(
        status in 0..6_usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let task = in_status(Status::ALL[status]);
        for mut bytes in [encode(&task).unwrap(), encode_compact(&task, true).unwrap()] {
            for (place, byte) in &damage {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            if truncate {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(task) = decode_compact(&bytes) {
                exercise(&task);
            }
        }
    }

    #[test]
    fn hostile_numbers_are_harmless(
        attempt in 0..u32::MAX - 1, retry_count in 0..u32::MAX - 1, max_retries in any::<u32>(),
        timeout_seconds in any::<u64>(), initial in any::<u64>(), max in any::<u64>(),
        multiplier in any::<f64>(), jitter in any::<f64>(), dropped in 0..COUNT_MAX - 1,
    ) {
        for status in Status::ALL {
            let mut task = in_status(status);
            task.attempt = attempt.max(1);
            task.retry_count = retry_count;
            task.max_retries = max_retries;
            task.timeout_seconds = timeout_seconds;
            task.events_dropped = dropped;
            task.retry_policy.initial_interval_ms = initial;
            task.retry_policy.max_interval_ms = max;
            if multiplier.is_finite() && jitter.is_finite() {
                task.retry_policy.multiplier = multiplier;
                task.retry_policy.jitter_percent = jitter;
            }
            exercise(&task);
        }
    }
}
