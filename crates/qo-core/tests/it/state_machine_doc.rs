//! Keeps `docs/reference/state-machine.md` in sync with the code.

use std::collections::BTreeSet;
use std::fmt::Write;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::{FailureKind, ProgressReport, submit};
use qo_core::{Action, Command, Jitter, Status, Submission, Task};

use crate::support::{after, at, claim, complete, fail, in_status, lease, op, pending, submission};

const START: &str =
    "<!-- table: checked against the code by a test; QO_UPDATE_DOCS=1 cargo test rewrites it -->\n";
const END: &str = "<!-- end of table -->";

fn stop_on_failure(submission: &mut Submission) {
    submission.ordering = Some(OrderingRule {
        key: "customer-7".parse().unwrap(),
        on_failure: OnFailure::Stop,
    });
}

/// The tasks of one status that can behave differently.
fn variants(status: Status) -> Vec<Task> {
    let cancel = || Action::Cancel { reason: None };
    let with = |change: fn(&mut Submission)| {
        let mut submission = submission(1);
        change(&mut submission);
        submit(submission, op(1), at(0)).unwrap()
    };
    match status {
        Status::Pending => vec![
            pending(),
            with(|s| s.expires_at = Some(at(1_000))),
            with(|s| s.max_wait_ms = Some(1_000)),
            with(|s| s.available_at = Some(at(20_000_000))),
        ],
        Status::Running => vec![
            after(pending(), claim(1)),
            after(with(|s| s.max_retries = Some(0)), claim(1)),
            after(after(pending(), claim(1)), cancel()),
        ],
        Status::Archived => [Status::Completed, Status::Failed, Status::Cancelled]
            .map(|end| after(in_status(end), Action::Archive))
            .into(),
        Status::Failed => vec![
            in_status(Status::Failed),
            after(
                after(with(stop_on_failure), claim(1)),
                fail(1, FailureKind::Permanent),
            ),
        ],
        end => vec![in_status(end)],
    }
}

fn actions() -> Vec<(&'static str, Action)> {
    let lease = lease(1);
    let report = ProgressReport {
        percent: 1.0,
        message: None,
    };
    vec![
        ("claim", claim(1)),
        (
            "renew",
            Action::Renew {
                lease,
                lease_ms: 1_000,
            },
        ),
        ("progress", Action::Progress { lease, report }),
        ("complete", complete(1)),
        ("fail, retryable", fail(1, FailureKind::Retryable)),
        ("fail, timeout", fail(1, FailureKind::Timeout)),
        ("fail, permanent", fail(1, FailureKind::Permanent)),
        ("fail, cancelled", fail(1, FailureKind::Cancelled)),
        ("release", Action::Release { lease }),
        ("snooze", Action::Snooze { lease, delay_ms: 1 }),
        (
            "expire lease",
            Action::ExpireLease {
                jitter: Jitter::NONE,
            },
        ),
        ("expire", Action::Expire),
        ("cancel", Action::Cancel { reason: None }),
        ("run now", Action::RunNow),
        (
            "amend",
            Action::Amend {
                input: None,
                available_at: Some(at(30_000_000)),
            },
        ),
        ("fence", Action::Fence),
        ("replay", Action::Replay),
        (
            "redrive",
            Action::Redrive {
                to: "elsewhere".parse().unwrap(),
            },
        ),
        ("archive", Action::Archive),
        ("unarchive", Action::Unarchive),
    ]
}

/// The table of all transitions, computed by trying every action on every kind of task.
fn table() -> String {
    let mut table = String::from("| action |");
    for status in Status::ALL {
        write!(table, " {status} |").unwrap();
    }
    table.push_str("\n| --- |");
    table.push_str(&" --- |".repeat(Status::ALL.len()));
    table.push('\n');
    for (name, action) in actions() {
        write!(table, "| {name} |").unwrap();
        for status in Status::ALL {
            // Late enough for every lease and every task to have expired.
            let reached: BTreeSet<Status> = variants(status)
                .into_iter()
                .filter_map(|mut task| {
                    let command = Command {
                        op: op(50),
                        action: action.clone(),
                    };
                    task.apply(command, at(10_000_000))
                        .ok()
                        .map(|()| task.status)
                })
                .collect();
            let reached: Vec<_> = reached.iter().map(|status| status.as_str()).collect();
            let cell = if reached.is_empty() {
                "–".into()
            } else {
                reached.join(", ")
            };
            write!(table, " {cell} |").unwrap();
        }
        table.push('\n');
    }
    table
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test reads and writes a document"
)]
fn the_documented_table_matches_the_code() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/state-machine.md"
    );
    let document = std::fs::read_to_string(path).unwrap();
    let (head, rest) = document.split_once(START).expect("the start of the table");
    let (documented, tail) = rest.split_once(END).expect("the end of the table");
    let table = table();
    if std::env::var_os("QO_UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{START}{table}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(
        documented, table,
        "docs/reference/state-machine.md is out of date: run QO_UPDATE_DOCS=1 cargo test -p qo-core"
    );
}
