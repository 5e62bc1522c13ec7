//! Test vectors for the dashboard, which changes tasks in a bucket without a server.
//!
//! The browser's code must write the same bytes as the core, and the same index entries as this engine. This test generates the
//! expected results of each action on many tasks, and `crates/qo-ui/ui/tests/unit/` checks the browser's code against them.
//! `QO_UPDATE_VECTORS=1 cargo test -p qo-direct vectors` writes the files; without it, the test fails if they are out of date.

use std::collections::BTreeMap;
use std::path::Path;

use qo_core::task::{READER, decode, encode};
use qo_core::transition::{Failure, FailureKind, Idempotency, ProgressReport, Submission, submit};
use qo_core::{
    Action, Command, Jitter, Json, LeaseId, OpId, PauseNote, PauseTarget, Payload, PayloadRef,
    Task, TaskId, Timestamp,
};
use qo_engine::api::{SubmitRequest, When};
use qo_engine::payload::digest;
use serde_json::{Value, json};

use super::index;
use super::paused_queues::QueuesRecord;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis)
}

fn op(number: u128) -> OpId {
    OpId::from_random(number << 64 | 9)
}

fn lease() -> LeaseId {
    LeaseId::from_random(8 << 70 | 8)
}

fn inline(text: &str) -> Payload {
    Payload::Inline(Json::parse(text).unwrap())
}

fn submission() -> Submission {
    Submission::new(
        TaskId::from_random(0x550e_8400_e29b_41d4_a716_4466_5544_0000),
        "send_email".parse().unwrap(),
        inline(r#"{"to":"a@example.org", "n": 123456789012345678901234567890.10 ,"z":[1,2]}"#),
    )
}

fn submitted(change: impl FnOnce(&mut Submission)) -> Task {
    let mut submission = submission();
    change(&mut submission);
    submit(submission, op(1), at(0)).unwrap()
}

fn after(mut task: Task, action: Action, millis: i64) -> Task {
    let command = Command {
        op: op(u128::from(task.revision) + 100),
        action,
    };
    task.apply(command, at(millis)).unwrap();
    task
}

fn claimed(task: Task, millis: i64) -> Task {
    let action = Action::Claim {
        worker: "worker-1".parse().unwrap(),
        lease: lease(),
        lease_ms: 90_000,
    };
    after(task, action, millis)
}

fn failed(task: Task, kind: FailureKind, error: &str, millis: i64) -> Task {
    let action = Action::Fail {
        lease: lease(),
        failure: Failure {
            kind,
            error: error.into(),
        },
        jitter: Jitter::NONE,
    };
    after(task, action, millis)
}

fn completed(task: Task, output: Option<Payload>, millis: i64) -> Task {
    let action = Action::Complete {
        lease: lease(),
        output,
    };
    // The browser keeps logs as they are.
    let action = Action::Logged {
        log: "connecting \u{1}\n\"done\" ✓\n".into(),
        action: Box::new(action),
    };
    after(task, action, millis)
}

/// A task with every field in use.
fn full() -> Task {
    let task = submitted(|s| {
        s.queue = "bulk".parse().unwrap();
        s.priority = 1;
        s.available_at = Some(at(1_000));
        s.expires_at = Some(at(1_000_000));
        s.timeout_seconds = Some(7);
        s.max_retries = Some(9);
        s.retry_policy.multiplier = 1.5;
        s.retry_policy.jitter_percent = 0.0;
        s.tags = vec!["customer: Ünal".parse().unwrap(), "b".parse().unwrap()];
        s.idempotency = Some(Idempotency {
            key: "order \"7\"\\".parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Type,
            until: Some(at(5_000)),
        });
    });
    let report = ProgressReport {
        percent: 50.0,
        message: Some("half way \u{1}\n".into()),
    };
    let lease = lease();
    let task = claimed(task, 2_000);
    after(task, Action::Progress { lease, report }, 3_000)
}

/// A task with `rounds` failed attempts, whose history may be full or overflow.
fn eventful(rounds: usize) -> Task {
    let mut task = submitted(|s| s.max_retries = Some(1_000));
    let mut millis = 0;
    for round in 0..rounds {
        millis += 200_000;
        let error = format!("attempt {round} broke: <b>\"{}\"</b>", "é".repeat(5));
        task = failed(
            claimed(task, millis),
            FailureKind::Retryable,
            &error,
            millis + 5,
        );
    }
    task
}

/// A record as another program, or an older version, may have written it.
fn foreign(fields: &str) -> String {
    format!(
        r#"{{ "zeta": {{"kept": [1, 2.50]}}, "id":"550e8400-e29b-41d4-a716-446655440000","task_type":"send_email",
        "shard":"5", {fields}, "available_at":"2027-01-15T08:00:00Z","created_at":"2027-01-15T09:00:00+01:00",
        "updated_at":"2027-01-15T08:00:00.5Z", "input": {{"a" : 1}}, "worker_id": null, "tags":[], "alpha":true,
        "retry_policy":{{"max_interval_ms":60000,"initial_interval_ms":1000,"multiplier":2,"jitter_percent":0.25,"later":1}}}}"#
    )
}

/// A task with a limit key, and with a group whose rank orders it in the index instead of its due time.
fn ranked(due: i64) -> Task {
    let mut task = submitted(|s| {
        s.available_at = Some(at(due));
        s.limit_key = Some("stripe".parse().unwrap());
        s.fairness_group = Some("acme".parse().unwrap());
    });
    task.fairness_rank = Some(at(7_000));
    task
}

fn text(task: &Task) -> String {
    String::from_utf8(encode(task).unwrap()).unwrap()
}

fn tasks() -> Vec<(&'static str, String)> {
    let pending = || submitted(|_| ());
    let running = || claimed(pending(), 10);
    let later = || submitted(|s| s.available_at = Some(at(3_600_000)));
    let done = || completed(running(), Some(inline("[1.0, \"</script>\"]")), 20);
    let dead = || failed(running(), FailureKind::Permanent, "a bug", 20);
    let cancelled = || after(pending(), Action::Cancel { reason: None }, 20);
    let reference =
        |text: &str| Payload::Stored(PayloadRef::new(text.len() as u64, digest(text.as_bytes())));
    let large = completed(
        claimed(submitted(|s| s.input = reference("large input")), 10),
        Some(reference("large output")),
        20,
    );
    let ahead = failed(
        claimed(later(), 3_600_000),
        FailureKind::Permanent,
        "x",
        3_600_001,
    );
    let mut tasks = vec![
        ("pending", text(&pending())),
        ("later", text(&later())),
        ("pending, with a group and a rank", text(&ranked(0))),
        ("later, with a group and a rank", text(&ranked(3_600_000))),
        (
            "failed, with a group and a rank",
            text(&failed(
                claimed(ranked(0), 10),
                FailureKind::Permanent,
                "a bug",
                20,
            )),
        ),
        (
            "later, and expired by then",
            text(&submitted(|s| {
                s.available_at = Some(at(200_000));
                s.expires_at = Some(at(300_000));
            })),
        ),
        ("running", text(&running())),
        (
            "running, and asked to stop",
            text(&after(running(), Action::Cancel { reason: None }, 15)),
        ),
        ("running, every field in use", text(&full())),
        (
            "failed, every field in use",
            text(&failed(full(), FailureKind::Permanent, "it broke", 4_000)),
        ),
        ("completed", text(&done())),
        ("completed, large payloads", text(&large)),
        (
            "completed, null output",
            text(&completed(running(), Some(inline("null")), 20)),
        ),
        ("failed", text(&dead())),
        ("failed, due later than now", text(&ahead)),
        ("cancelled", text(&cancelled())),
        (
            "archived when completed",
            text(&after(done(), Action::Archive, 30)),
        ),
        (
            "archived when failed",
            text(&after(dead(), Action::Archive, 30)),
        ),
        (
            "archived when cancelled",
            text(&after(cancelled(), Action::Archive, 30)),
        ),
        ("history almost full", text(&eventful(31))),
        ("history more than full", text(&eventful(40))),
    ];
    for (name, fields) in [
        (
            "foreign spelling, pending",
            r#""status":"pending", "revision": 7, "expires_at":null"#,
        ),
        (
            "foreign spelling, failed",
            r#""status":"failed", "output": null, "cancel_requested":false, "events_dropped":0"#,
        ),
        (
            "foreign spelling, archived without history",
            r#""status":"archived","attempt":3,"idempotency_scope":"queue""#,
        ),
    ] {
        tasks.push((name, foreign(fields)));
    }
    tasks
}

fn transitions() -> Value {
    let long: String = "no longer wanted: äöü€😀 ".repeat(200);
    let cancel = |reason: Option<&str>| Action::Cancel {
        reason: reason.map(Into::into),
    };
    let redrive = |to: &str| Action::Redrive {
        to: to.parse().unwrap(),
    };
    let actions = [
        ("run_now", None, Action::RunNow),
        ("cancel", None, cancel(None)),
        ("cancel", Some("long_reason"), cancel(Some(&long))),
        ("replay", None, Action::Replay),
        ("redrive", None, redrive("elsewhere")),
        ("redrive", None, redrive("default")),
        ("archive", None, Action::Archive),
        ("unarchive", None, Action::Unarchive),
    ];
    let mut cases = Vec::new();
    let tasks: BTreeMap<_, _> = tasks().into_iter().collect();
    for (name, before) in &tasks {
        let task = decode(before.as_bytes()).unwrap();
        for (kind, reason, action) in &actions {
            let to = match action {
                Action::Redrive { to } => Some(to.clone()),
                _ => None,
            };
            // The second time is before all times in the record, as with a clock that is behind.
            for (now, by) in [(at(1_000_000), Some("dashboard")), (at(-5_000), None)] {
                let mut changed = task.clone();
                let action = match by {
                    None => action.clone(),
                    Some(actor) => Action::By {
                        actor: actor.parse().unwrap(),
                        action: Box::new(action.clone()),
                    },
                };
                let command = Command { op: op(77), action };
                let outcome = match changed.apply(command, now) {
                    Err(rejection) => json!({ "rejected": rejection.to_string() }),
                    Ok(()) => json!({
                        "after": text(&changed),
                        "put": index::pending_key(&changed, now).map(|key| key.to_string()),
                        "stale": index::stale_keys(&task, &changed, now)
                            .iter()
                            .map(ToString::to_string)
                            .collect::<Vec<_>>(),
                    }),
                };
                cases.push(json!({
                    "task": name,
                    "action": kind,
                    "reason": reason,
                    "to": to,
                    "by": by,
                    "now": now,
                    "outcome": outcome,
                }));
            }
        }
    }
    json!({ "op": op(77), "long_reason": long, "tasks": tasks, "cases": cases })
}

fn submits() -> Value {
    let plain = SubmitRequest::new(
        "send_email".parse().unwrap(),
        Json::parse(r#"{"to": "a@example.org"}"#).unwrap(),
    );
    let mut special = SubmitRequest {
        queue: "bulk".parse().unwrap(),
        priority: 0,
        available: When::InMillis(60_000),
        timeout_seconds: Some(7),
        max_retries: Some(0),
        tags: vec!["ä \"b\"".parse().unwrap()],
        ..plain.clone()
    };
    special.retry_policy.multiplier = 1.5;
    special.retry_policy.jitter_percent = 0.0;
    let limited = SubmitRequest {
        expires: Some(When::InMillis(3_600_000)),
        limit_key: Some("stripe".parse().unwrap()),
        ..plain.clone()
    };
    [("plain", plain), ("special", special), ("limited", limited)]
        .into_iter()
        .map(|(name, request)| {
            let id = TaskId::from_random(0xa50e_8400_e29b_41d4_a716_4466_5544_0000);
            let now = at(0);
            let input = Payload::Inline(request.input.clone());
            let request_json = json!({
                "task_type": request.task_type,
                "queue": request.queue,
                "priority": request.priority,
                "delay_ms": if let When::InMillis(millis) = request.available { millis } else { 0 },
                "timeout_seconds": request.timeout_seconds,
                "max_retries": request.max_retries,
                "retry_policy": serde_json::to_string(&request.retry_policy).unwrap(),
                "tags": request.tags,
                "expires_in_ms": if let Some(When::InMillis(millis)) = request.expires { Some(millis) } else { None },
                "limit_key": request.limit_key,
                "input": request.input.as_str(),
            });
            let task = submit(request.into_submission(id, input, now), op(5), now).unwrap();
            json!({
                "name": name,
                "id": id,
                "op": op(5),
                "now": now,
                "request": request_json,
                "record": text(&task),
                "put": index::pending_key(&task, now).map(|key| key.to_string()),
            })
        })
        .collect::<Vec<_>>()
        .into()
}

fn pauses() -> Value {
    let mut record = QueuesRecord::default();
    let mut vectors = Vec::new();
    for step in 0..36_u8 {
        let name = ["default", "bulk", "a.b"][usize::from(step) % 3];
        let target = if step % 5 < 3 {
            PauseTarget::Queue(name.parse().unwrap())
        } else {
            PauseTarget::Type(name.parse().unwrap())
        };
        // A long reason is truncated between two characters.
        let long = "für immer ".repeat(60);
        let reason = ["", "the provider is down", long.as_str()][usize::from(step) / 2 % 3];
        let note = (step % 3 != 1).then(|| PauseNote {
            by: (step % 4 < 3).then(|| "dashboard".parse().unwrap()),
            reason: Some(reason.to_owned()),
        });
        let before = (step > 0).then(|| serde_json::to_string(&record).unwrap());
        let (op, now) = (op(u128::from(step) + 1), at(i64::from(step)));
        let mut pauses = record.pauses();
        let is_changed = pauses.set(&target, note.clone(), now);
        if is_changed {
            record.set(pauses, op, now);
        }
        vectors.push(json!({
            "before": before,
            "target": match &target {
                PauseTarget::Queue(queue) => json!({ "queue": queue }),
                PauseTarget::Type(name) => json!({ "type": name }),
            },
            "note": note.map(|note| json!({ "by": note.by, "reason": note.reason })),
            "op": op,
            "now": now,
            "after": is_changed.then(|| serde_json::to_string(&record).unwrap()),
        }));
    }
    json!(vectors)
}

#[test]
fn the_dashboard_vectors_match_the_core() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qo-ui/ui/tests/vectors");
    for (name, vectors) in [
        ("transitions.json", transitions()),
        ("submits.json", submits()),
        ("pauses.json", pauses()),
        ("reader.json", json!({ "reader": READER })),
    ] {
        let mut expected = serde_json::to_string_pretty(&vectors).unwrap();
        expected.push('\n');
        let path = dir.join(name);
        if std::env::var_os("QO_UPDATE_VECTORS").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&path, expected).unwrap();
            continue;
        }
        let current = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            current == expected,
            "ui/tests/vectors/{name} is out of date: run QO_UPDATE_VECTORS=1 cargo test -p qo-direct vectors"
        );
    }
}
