use std::time::Duration;

use qo_core::Rejection;
use qo_core::retry::InvalidRetryPolicy;
use qo_store::StoreError;

use super::*;

#[expect(clippy::too_many_lines, reason = "it is a list")]
fn every_error() -> Vec<EngineError> {
    let id = TaskId::from_random(1);
    let key = || "tasks/0/x.json".to_owned();
    let detail = || "a detail".to_owned();
    let at = Timestamp::from_millis(1_763_238_840_123);
    let mut errors: Vec<EngineError> = vec![
        Rejection::NotFound { id }.into(),
        Rejection::LeaseLost {
            presented: LeaseId::from_random(2),
            status: Status::Completed,
            attempt: 3,
        }
        .into(),
        Rejection::WrongStatus {
            action: "replay",
            status: Status::Running,
        }
        .into(),
        Rejection::NotDue { available_at: at }.into(),
        Rejection::AlreadyDue { available_at: at }.into(),
        Rejection::Expired { expires_at: at }.into(),
        Rejection::NotExpired { expires_at: None }.into(),
        Rejection::NotExpired {
            expires_at: Some(at),
        }
        .into(),
        Rejection::LeaseHolds {
            lease_expires_at: at,
        }
        .into(),
        Rejection::InLine { action: "redrive" }.into(),
        Rejection::AlreadyInQueue {
            queue: "bulk".parse().unwrap(),
        }
        .into(),
        Rejection::CancelAlreadyRequested.into(),
        Rejection::AttemptsUsedUp.into(),
        Rejection::PayloadTooLarge {
            field: "input",
            size: 2,
            limit: 1,
        }
        .into(),
        Rejection::OutOfBounds {
            field: "priority",
            allowed: "0 to 9",
        }
        .into(),
        EngineError::WorkerNotFound {
            worker: "w".parse().unwrap(),
        },
        StoreError::NotFound { key: key() }.into(),
        StoreError::Conflict { key: key() }.into(),
        StoreError::AlreadyExists { key: key() }.into(),
        StoreError::Throttled {
            key: key(),
            detail: detail(),
            attempts: 4,
        }
        .into(),
        StoreError::Unavailable {
            key: key(),
            detail: detail(),
            attempts: 4,
            elapsed: Duration::from_millis(1_234),
            in_doubt: true,
        }
        .into(),
        StoreError::Denied {
            key: key(),
            detail: detail(),
        }
        .into(),
        StoreError::Corrupt {
            key: key(),
            detail: detail(),
        }
        .into(),
        EngineError::Unreadable {
            id,
            detail: detail(),
        },
        EngineError::Contended { id },
        EngineError::PayloadTooLarge {
            field: "output",
            size: 9,
            limit: 8,
        },
        EngineError::BadRequest("the cursor is invalid".to_owned()),
        EngineError::QueuePaused {
            queues: vec!["a".parse().unwrap()],
            types: vec!["t".parse().unwrap()],
        },
        EngineError::NotVersioned,
        EngineError::NotLeader,
        EngineError::ObjectFull { size: 2, limit: 1 },
        Rejection::QueueFull {
            queue: "a".parse().unwrap(),
            limit: 7,
        }
        .into(),
        document_conflict(),
        EngineError::Closed,
    ];
    for rule in [
        InvalidRetryPolicy::IntervalTooLong,
        InvalidRetryPolicy::InitialAboveMax,
        InvalidRetryPolicy::Multiplier,
        InvalidRetryPolicy::Jitter,
    ] {
        errors.push(Rejection::RetryPolicy(rule).into());
    }
    errors
}

fn document_conflict() -> EngineError {
    let name = "nightly".parse().unwrap();
    let kind = qo_core::DocumentKind::Schedules;
    EngineError::DocumentConflict {
        id: qo_core::DocumentId { kind, name },
    }
}

#[test]
fn every_error_round_trips() {
    for error in every_error() {
        let problem = Problem::from(&error);
        let text = serde_json::to_string(&problem).unwrap();
        let read: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!(read, problem, "{text}");
        assert_eq!(problem.detail, error.to_string());
        assert!((400..600).contains(&problem.status));
        assert_eq!(
            problem.uri,
            format!("urn:qo:problem:{}", problem.condition.code())
        );
        assert!(
            text.contains(&format!("\"code\":\"{}\"", problem.condition.code())),
            "{text}"
        );
        assert_eq!(read.into_error("http://server"), error);
    }
}

#[test]
fn an_unknown_condition_is_still_an_error() {
    let text = r#"{"type":"urn:qo:problem:new","title":"New","status":409,"detail":"it says why","code":"new","more":[1]}"#;
    let problem: Problem = serde_json::from_str(text).unwrap();
    let error = problem.into_error("http://server");
    assert_eq!(error, EngineError::BadRequest("it says why".to_owned()));
    let broken = Problem::new(Condition::Unknown, "broken").into_error("http://server");
    assert!(matches!(
        broken,
        EngineError::Store(StoreError::Unavailable { .. })
    ));
}

#[test]
fn a_rejected_token_is_denied_access() {
    for condition in [Condition::Unauthorized, Condition::Forbidden] {
        let error = Problem::new(condition, "no").into_error("http://server");
        assert!(matches!(
            error,
            EngineError::Store(StoreError::Denied { .. })
        ));
    }
}

#[test]
fn a_problem_without_detail_gets_a_message() {
    let text = r#"{"type":"x","title":"t","status":418,"detail":" ","code":"a_later_one"}"#;
    let problem: Problem = serde_json::from_str(text).unwrap();
    let error = problem.into_error("http://localhost").to_string();
    assert!(error.contains("418"), "{error}");
}
