//! A stored task, decoded from arbitrary bytes.

use qo_core::queue_state::{Request, StateCommand};
use qo_core::task::{decode, decode_compact, encode, encode_compact};
use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Action, Command, Jitter, Json, LeaseId, OpId, Payload, QueueState, Task, Timestamp};
use qo_store::client::{Authorship, carries_operation};

/// A record that decodes, in either form, round-trips in both. Every action either follows the rules or is rejected without a
/// change. A changed record round-trips, and its operation is recognised.
pub(crate) fn task_record(bytes: &[u8]) {
    let Ok(task) = decode(bytes).or_else(|_| decode_compact(bytes)) else {
        return;
    };
    written_compactly(&task);
    let written = encode(&task).unwrap_or_default();
    assert_eq!(decode(&written).as_ref(), Ok(&task));
    if let Some(op) = task.op_id {
        assert_eq!(carries_operation(&written, &op), Some(Authorship::Latest));
    }
    for now in [task.updated_at, Timestamp::MIN, Timestamp::MAX] {
        for action in actions(&task) {
            apply(&task, action, now);
        }
    }
    keep(task);
}

/// The compact form round-trips, with and without the input.
fn written_compactly(task: &Task) {
    let whole = encode_compact(task, true).unwrap_or_default();
    assert_eq!(decode_compact(&whole).as_ref(), Ok(task));
    let record = encode_compact(task, false).unwrap_or_default();
    let without = decode_compact(&record);
    assert_eq!(without.as_ref().map(Task::inline_input), Ok(None));
    assert_eq!(without.map(|task| task.revision), Ok(task.revision));
}

fn apply(task: &Task, action: Action, now: Timestamp) {
    let op = OpId::from_random(0x5eed);
    let name = action.name();
    let mut changed = task.clone();
    if changed.apply(Command { op, action }, now).is_err() {
        assert_eq!(&changed, task, "a rejected {name} changed the task");
        return;
    }
    assert_ne!(
        changed.revision, task.revision,
        "{name}: the revision did not change"
    );
    assert!(
        changed.attempt >= task.attempt,
        "{name}: the fencing token decreased"
    );
    assert!(changed.updated_at >= task.updated_at, "{name}");
    let written = encode(&changed).unwrap_or_default();
    assert_eq!(decode(&written).as_ref(), Ok(&changed), "{name}");
    written_compactly(&changed);
    assert_eq!(
        carries_operation(&written, &op),
        Some(Authorship::Latest),
        "{name}"
    );
}

/// Every action, with the task's own lease and with another one.
fn actions(task: &Task) -> Vec<Action> {
    let jitter = Jitter::NONE;
    let mut actions = vec![
        Action::ExpireLease { jitter },
        Action::Expire,
        Action::Cancel {
            reason: Some("why".into()),
        },
        Action::RunNow,
        Action::Amend {
            input: Some(Payload::Inline(Json::null())),
            available_at: Some(task.available_at.plus_millis(1)),
        },
        Action::Fence,
        Action::Replay,
        Action::Archive,
        Action::Unarchive,
    ];
    if let Ok(to) = "elsewhere".parse() {
        actions.push(Action::Redrive { to });
    }
    if let Ok(worker) = "w".parse() {
        let lease = LeaseId::from_random(1);
        actions.push(Action::Claim {
            worker,
            lease,
            lease_ms: 60_000,
        });
    }
    for lease in [task.lease_id, Some(LeaseId::from_random(2))]
        .into_iter()
        .flatten()
    {
        let failure = |kind| Failure {
            kind,
            error: "it broke".into(),
        };
        actions.extend([
            Action::Renew {
                lease,
                lease_ms: u64::MAX,
            },
            Action::Progress {
                lease,
                report: ProgressReport {
                    percent: 12.5,
                    message: None,
                },
            },
            Action::Complete {
                lease,
                output: Some(Payload::Inline(Json::null())),
            },
            Action::Fail {
                lease,
                failure: failure(FailureKind::Retryable),
                jitter,
            },
            Action::Fail {
                lease,
                failure: failure(FailureKind::Permanent),
                jitter,
            },
            Action::Fail {
                lease,
                failure: failure(FailureKind::Cancelled),
                jitter,
            },
            Action::Release { lease },
            Action::Snooze { lease, delay_ms: 1 },
        ]);
    }
    actions
}

/// Any decoded task can be loaded into memory, expired, and unloaded without leaving index entries.
fn keep(task: Task) {
    let id = task.id;
    let mut state = QueueState::new();
    assert!(state.load(task.clone()));
    assert!(!state.load(task), "the same id was loaded twice");
    let expire = Request::ExpireLeases {
        limit: 10,
        lease_margin_ms: 1_000,
        jitter: Jitter::NONE,
    };
    let op = OpId::from_random(9);
    let _ = state.apply(
        StateCommand {
            op,
            request: expire,
        },
        Timestamp::MAX,
    );
    assert!(state.task(id).is_some());
    state.unload(id);
    assert!(state.is_empty() && state.next_expiry(0).is_none());
    assert!(state.next_due(Timestamp::MIN).is_none());
}
