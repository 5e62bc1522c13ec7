//! Limits: how many tasks run at once, and start within a time window.

use std::collections::BTreeMap;

use qo_core::document::DocumentChange;
use qo_core::queue_state::{CommandOutcome, Request};
use qo_core::{
    Action, DocumentId, DocumentKind, Jitter, Json, QueueState, Status, StoredDocument, Submission,
    TaskId,
};

use super::Space;
use crate::support::{at, id, op, submission};

fn limit_id(name: &str) -> DocumentId {
    DocumentId {
        kind: DocumentKind::Limits,
        name: name.parse().unwrap(),
    }
}

impl Space {
    /// Writes or removes a limit.
    fn set_limit(&mut self, name: &str, body: Option<&str>, number: u64) {
        let limit_id = limit_id(name);
        let change = DocumentChange {
            expected: self.state.document(&limit_id).map(|known| known.op_id),
            body: body.map(|text| Json::parse(text).unwrap()),
            op: op(1_000 + number),
        };
        let outcome = self.apply(Request::Document(limit_id, change), at(0));
        assert_eq!(outcome, CommandOutcome::DocumentSet { changed: true });
        self.state.check_consistency().unwrap();
    }

    fn end(&mut self, number: u64, action: impl Fn(qo_core::LeaseId) -> Action) {
        let held = self.state.task(id(number)).unwrap().lease_id.unwrap();
        let request = Request::Task {
            id: id(number),
            action: action(held),
        };
        let outcome = self.apply(request, at(20));
        assert_eq!(outcome, CommandOutcome::Applied { id: id(number) });
        self.state.check_consistency().unwrap();
    }

    fn why(&self, number: u64) -> Option<String> {
        let wait = self.state.waits_for_limit(id(number), at(20))?;
        Some(wait.to_string())
    }
}

fn complete(lease: qo_core::LeaseId) -> Action {
    Action::Complete {
        lease,
        output: None,
    }
}

fn keyed(number: u64, key: &str) -> Submission {
    Submission {
        limit_key: Some(key.parse().unwrap()),
        ..submission(number)
    }
}

fn ids(numbers: impl IntoIterator<Item = u64>) -> Vec<TaskId> {
    numbers.into_iter().map(id).collect()
}

#[test]
fn tasks_that_wait_for_a_limit_do_not_block_others() {
    let mut space = Space::new();
    space.set_limit(
        "stripe",
        Some(r#"{"limit_key":"stripe","concurrent":2}"#),
        1,
    );
    for number in 1..=50 {
        space.submit(keyed(number, "stripe"), at(0));
    }
    space.submit(keyed(51, "paypal"), at(0));
    space.submit(submission(52), at(0));
    assert_eq!(space.claim(&[], &[], 60, at(10)), ids([1, 2, 51, 52]));
    assert_eq!(
        space.why(3).as_deref(),
        Some("limit stripe: 2 of 2 running")
    );
    assert_eq!(space.why(1), None, "it is running");
    assert!(space.claim(&[], &[], 60, at(10)).is_empty());
    assert_eq!(space.state.count_due(&[], &[], at(10), 60), 0);
}

#[test]
fn every_end_of_an_attempt_returns_its_slot() {
    type End = fn(qo_core::LeaseId) -> Action;
    let ends: [End; 4] = [
        complete,
        |lease| Action::Release { lease },
        |lease| Action::Snooze {
            lease,
            delay_ms: 1_000,
        },
        |lease| Action::Fail {
            lease,
            failure: qo_core::transition::Failure {
                kind: qo_core::transition::FailureKind::Retryable,
                error: "broken".into(),
            },
            jitter: Jitter::NONE,
        },
    ];
    for end in ends {
        let mut space = Space::new();
        space.set_limit("l", Some(r#"{"task_type":"send_email","concurrent":1}"#), 1);
        space.submit(submission(1), at(0));
        space.submit(submission(2), at(0));
        assert_eq!(space.claim(&[], &[], 9, at(10)), ids([1]));
        space.end(1, end);
        assert_eq!(space.claim(&[], &[], 9, at(20)), ids([2]));
        assert!(space.claim(&[], &[], 9, at(20)).is_empty());
    }
    // So does the end of a lease, and the end of a task whose cancel was requested.
    let mut space = Space::new();
    space.set_limit("l", Some(r#"{"queue":"default","concurrent":1}"#), 1);
    space.submit(submission(1), at(0));
    space.submit(submission(2), at(0));
    assert_eq!(space.claim(&[], &[], 9, at(10)), ids([1]));
    let cancel = Request::Task {
        id: id(1),
        action: Action::Cancel { reason: None },
    };
    space.apply(cancel, at(11));
    assert!(space.claim(&[], &[], 9, at(20)).is_empty(), "it still runs");
    let expire = Request::ExpireLeases {
        limit: 10,
        lease_margin_ms: 0,
        jitter: Jitter::NONE,
    };
    space.apply(expire, at(1_000_000));
    assert_eq!(space.state.task(id(1)).unwrap().status, Status::Cancelled);
    assert_eq!(space.claim(&[], &[], 9, at(1_000_000)), ids([2]));
}

#[test]
fn starts_are_counted_over_a_window() {
    let mut space = Space::new();
    let limit = r#"{"queue":"default","starts":{"max":2,"window_ms":60000}}"#;
    space.set_limit("l", Some(limit), 1);
    for number in 1..=4 {
        space.submit(submission(number), at(0));
    }
    assert_eq!(space.claim(&[], &[], 9, at(0)), ids([1, 2]));
    space.end(1, complete);
    space.end(2, complete);
    assert!(space.claim(&[], &[], 9, at(30_000)).is_empty());
    // The loop wakes when the window has room again.
    let opens = space.state.next_due(at(30_000)).unwrap();
    assert_eq!(opens, at(61_000));
    let why = space.why(3).unwrap();
    assert!(
        why.starts_with("limit l: 2 of 2 started, the next at "),
        "{why}"
    );
    assert!(space.claim(&[], &[], 9, at(60_999)).is_empty());
    assert_eq!(space.claim(&[], &[], 9, opens), ids([3, 4]));
}

#[test]
fn a_successor_continues_with_the_slots_and_starts() {
    let mut space = Space::new();
    let limit = r#"{"queue":"default","concurrent":1,"starts":{"max":2,"window_ms":60000}}"#;
    space.set_limit("l", Some(limit), 1);
    for number in 1..=4 {
        space.submit(submission(number), at(0));
    }
    assert_eq!(space.claim(&[], &[], 9, at(0)), ids([1]));
    space.end(1, complete);
    assert_eq!(space.claim(&[], &[], 9, at(0)), ids([2]));
    // Finished tasks are not loaded, so the starts must be stored apart from them.
    let stored = serde_json::to_string(space.state.document(&limit_id("l")).unwrap()).unwrap();
    let stored: StoredDocument = serde_json::from_str(&stored).unwrap();
    for documents_first in [true, false] {
        let mut successor = QueueState::new();
        let documents = BTreeMap::from([(limit_id("l"), stored.clone())]);
        if documents_first {
            successor.restore_documents(documents.clone());
        }
        for task in space.state.tasks().filter(|task| !task.is_settled()) {
            assert!(successor.load(task.clone()));
        }
        if !documents_first {
            successor.restore_documents(documents);
        }
        successor.check_consistency().unwrap();
        let mut after = Space::new();
        after.state = successor;
        assert_eq!(after.why(3).as_deref(), Some("limit l: 1 of 1 running"));
        assert!(after.claim(&[], &[], 9, at(20)).is_empty());
        after.end(2, complete);
        assert!(
            after.claim(&[], &[], 9, at(20)).is_empty(),
            "two have started"
        );
        assert_eq!(after.claim(&[], &[], 9, at(61_000)), ids([3]));
    }
}

#[test]
fn a_task_needs_a_slot_of_each_of_its_limits() {
    let mut space = Space::new();
    space.set_limit("all", Some(r#"{"queue":"default","concurrent":3}"#), 1);
    space.set_limit(
        "stripe",
        Some(r#"{"limit_key":"stripe","concurrent":1}"#),
        2,
    );
    for number in 1..=3 {
        space.submit(keyed(number, "stripe"), at(0));
    }
    for number in 4..=6 {
        space.submit(submission(number), at(0));
    }
    assert_eq!(space.claim(&[], &[], 9, at(10)), ids([1, 4, 5]));
    assert_eq!(space.why(6).as_deref(), Some("limit all: 3 of 3 running"));
    space.end(4, complete);
    assert_eq!(space.claim(&[], &[], 9, at(20)), ids([6]));
    space.end(1, complete);
    assert_eq!(space.claim(&[], &[], 9, at(20)), ids([2]));
}

#[test]
fn limits_change_while_tasks_run() {
    let mut space = Space::new();
    for number in 1..=9 {
        space.submit(submission(number), at(0));
    }
    assert_eq!(space.claim(&[], &[], 3, at(10)), ids([1, 2, 3]));
    // A new limit counts what is running.
    space.set_limit("l", Some(r#"{"queue":"default","concurrent":2}"#), 1);
    space.end(1, complete);
    assert!(space.claim(&[], &[], 9, at(20)).is_empty());
    assert_eq!(space.why(4).as_deref(), Some("limit l: 2 of 2 running"));
    space.set_limit("l", Some(r#"{"queue":"default","concurrent":4}"#), 2);
    assert_eq!(space.claim(&[], &[], 9, at(20)), ids([4, 5]));
    space.set_limit("l", Some(r#"{"queue":"other","concurrent":1}"#), 3);
    assert_eq!(space.claim(&[], &[], 2, at(20)), ids([6, 7]));
    space.set_limit("l", Some(r#"{"queue":"default","concurrent":1}"#), 4);
    assert!(space.claim(&[], &[], 9, at(20)).is_empty());
    space.set_limit("l", None, 5);
    assert_eq!(space.claim(&[], &[], 9, at(20)), ids([8, 9]));
}

#[test]
fn a_limit_that_cannot_be_read_limits_nothing() {
    let mut space = Space::new();
    space.submit(submission(1), at(0));
    space.set_limit("l", Some(r#"{"moon":1}"#), 1);
    assert_eq!(space.claim(&[], &[], 9, at(10)), ids([1]));
}
