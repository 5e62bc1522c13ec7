//! Breaches of calls and stored versions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use qo_check::{CallKind, Excuse, Promise, Reply, Step, StoredVersion, TaskView, left_over_keys};
use qo_core::task::{IdempotencyScope, decode, encode};
use qo_core::transition::{Failure, FailureKind, Idempotency};
use qo_core::{Action, Jitter, Rejection, Status, Submission, Task, TaskId};

use crate::scene::{Scene, WORKER, at, claim, complete, expire, lease, submission};

/// Changes a stored version.
pub(crate) fn rewrite(scene: &mut Scene, number: usize, change: impl FnOnce(&mut Task)) {
    let version = &mut scene.stored()[number];
    let mut task = decode(version.body.as_ref().unwrap()).unwrap();
    change(&mut task);
    version.body = Some(Bytes::from(encode(&task).unwrap()));
}

fn renew(number: u128) -> Action {
    Action::Renew {
        lease: lease(number),
        lease_ms: 6_000,
    }
}

fn keyed(id: u128) -> Submission {
    Submission {
        idempotency: Some(Idempotency {
            key: "order-7".parse().unwrap(),
            scope: IdempotencyScope::Global,
            until: None,
        }),
        ..submission(id)
    }
}

#[test]
fn correct_histories_break_nothing() {
    let failure = Failure {
        kind: FailureKind::Retryable,
        error: "exit code 1".into(),
    };
    let fail = Action::Fail {
        lease: lease(1),
        failure,
        jitter: Jitter::NONE,
    };
    let release = Action::Release { lease: lease(1) };
    let reason = None;
    for actions in [
        vec![claim(1), complete(1)],
        vec![claim(1), renew(1), complete(1)],
        vec![claim(1), fail, claim(2), complete(2)],
        vec![claim(1), release, claim(2), complete(2)],
        vec![Action::Cancel { reason }],
        vec![claim(1), complete(1), Action::Archive],
        vec![claim(1), complete(1), Action::Replay, claim(2), complete(2)],
    ] {
        let checked = Scene::of(keyed(1), actions.clone()).check();
        assert!(
            checked.breaches.is_empty(),
            "{actions:?}\n{}",
            checked.breaches
        );
        assert_eq!(checked.undecided, 0);
        let life = checked.lives.values().next().unwrap();
        assert_eq!(life.changes.len(), actions.len() + 1);
    }
}

#[test]
fn a_lost_task_is_found() {
    let mut scene = Scene::completed();
    scene.versions.clear();
    scene.finds(Promise::NothingLost, "was acknowledged and is lost");
    let mut duplicate = Scene::completed();
    duplicate.versions.clear();
    duplicate.calls.truncate(1);
    let Reply::Done(Some(view)) = duplicate.calls[0].reply else {
        panic!("the submit is acknowledged");
    };
    duplicate.calls[0].reply = Reply::Duplicate(view);
    duplicate.finds(Promise::NothingLost, "was acknowledged and is lost");
}

#[test]
fn a_rejected_submit_is_found() {
    let mut scene = Scene::completed();
    scene.call(CallKind::Submit).reply = Reply::Rejected(Rejection::CancelAlreadyRequested);
    scene.finds(Promise::NothingLost, "its submit was rejected");
}

#[test]
fn an_unreadable_payload_is_found() {
    let mut scene = Scene::completed();
    scene.unreadable = vec![(scene.id(), "its input is lost".to_owned())];
    assert_eq!(scene.broken(), [Promise::NothingLost].into());
}

#[test]
fn a_task_that_is_new_twice_is_found() {
    let mut scene = Scene::completed();
    let again = scene.call(CallKind::Submit).clone();
    scene.calls.push(again);
    scene.finds(Promise::OneTask, "acknowledged as new twice");
}

#[test]
fn two_tasks_of_one_key_are_found() {
    let mut scene = Scene::of(keyed(1), vec![claim(1), complete(1)]);
    scene.join(Scene::of(keyed(2), vec![claim(2), complete(2)]));
    scene.finds(Promise::OneTask, "key order-7 has tasks");
    let mut scene = Scene::of(submission(1), vec![claim(1), complete(1)]);
    scene.call(CallKind::Submit).key = Some("order-7".parse().unwrap());
    scene.finds(Promise::OneTask, "has another key");
}

#[test]
fn two_tasks_of_one_key_are_found_if_one_of_them_is_purged() {
    let scene = |purged_at: u64| {
        let mut scene = Scene::of(keyed(1), vec![claim(1), complete(1), Action::Archive]);
        let mut gone = scene.stored()[3].clone();
        (gone.body, gone.tick) = (None, purged_at + 5);
        scene.stored().push(gone);
        let mut purge = scene.call(CallKind::Archive).clone();
        purge.kind = CallKind::Purge;
        (purge.called, purge.answered) = (purged_at, Some(purged_at + 9));
        purge.reply = Reply::Done(None);
        scene.calls.push(purge);
        let mut other = Scene::of(keyed(2), vec![claim(2), complete(2)]);
        for version in other.stored() {
            version.tick += 1_000;
        }
        for call in &mut other.calls {
            call.called += 1_000;
            call.answered = call.answered.map(|answered| answered + 1_000);
        }
        scene.join(other);
        scene
    };
    assert_eq!(scene(100).check().breaches.to_string(), "");
    scene(2_000).finds(Promise::OneTask, "key order-7 has tasks");
}

#[test]
fn a_purged_task_that_a_late_submit_creates_again_is_deleted_unseen_or_found() {
    let mut scene = Scene::of(keyed(1), vec![claim(1), complete(1), Action::Archive]);
    let created = scene.stored()[0].clone();
    let mut gone = scene.stored()[3].clone();
    (gone.body, gone.tick) = (None, 105);
    let mut purge = scene.call(CallKind::Archive).clone();
    purge.kind = CallKind::Purge;
    (purge.called, purge.answered) = (100, Some(109));
    purge.reply = Reply::Done(None);
    scene.calls.push(purge);
    scene.stored().push(gone.clone());
    scene.stored().push(StoredVersion {
        tick: 205,
        ..created
    });
    assert!(!scene.broken().is_empty(), "it is there again");
    scene.stored().push(StoredVersion { tick: 215, ..gone });
    assert_eq!(scene.check().breaches.to_string(), "");
}

#[test]
fn calls_without_effect_and_effects_without_calls_are_found() {
    for kind in [CallKind::Submit, CallKind::Complete] {
        let mut scene = Scene::completed();
        scene.calls.retain(|call| call.kind != kind);
        assert!(!scene.broken().is_empty(), "{kind:?} without a call");
    }
    let mut scene = Scene::completed();
    let again = scene.call(CallKind::Complete).clone();
    scene.calls.push(again);
    scene.finds(Promise::OneAttempt, "Complete happened 1 times");
    let mut scene = Scene::completed();
    scene.call(CallKind::Complete).reply = Reply::Failed("no connection".to_owned());
    scene.finds(Promise::OneAttempt, "Complete happened 1 times");
    let mut scene = Scene::of(submission(1), vec![claim(1), renew(1), complete(1)]);
    scene.calls.retain(|call| call.kind != CallKind::Renew);
    scene.finds(Promise::OneAttempt, "Renew happened 1 times");
}

#[test]
fn a_renewal_may_be_refused_after_it_was_made_if_its_lease_was_lost() {
    let actions = vec![claim(1), renew(1), expire(), claim(2), complete(2)];
    let refused = |presented: u128| {
        let mut scene = Scene::of(submission(1), actions.clone());
        scene.excuses = vec![Excuse {
            worker: None,
            from: at(0),
            until: at(100),
        }];
        let renewal = scene.call(CallKind::Renew);
        renewal.lease = Some(lease(presented));
        renewal.reply = Reply::Rejected(Rejection::LeaseLost {
            presented: lease(presented),
            status: Status::Pending,
            attempt: 1,
        });
        // Its first response was lost, and it was tried again.
        renewal.answered = Some(45);
        scene
    };
    let checked = refused(1).check();
    assert!(checked.breaches.is_empty(), "{}", checked.breaches);
    // The renewal of a lease is not explained by the refusal of another one.
    refused(2).finds(Promise::OneAttempt, "Renew happened 1 times");
}

#[test]
fn an_attempt_that_is_handed_out_twice_or_not_stored_is_found() {
    let mut scene = Scene::completed();
    let again = scene.call(CallKind::Claim).clone();
    scene.calls.push(again);
    scene.finds(Promise::OneAttempt, "was handed out twice");
    let mut scene = Scene::completed();
    scene.call(CallKind::Claim).lease = Some(lease(9));
    scene.finds(Promise::OneAttempt, "was handed out and is not stored");
}

#[test]
fn an_attempt_that_is_never_handed_out_is_found() {
    let mut scene = Scene::completed();
    scene.calls.retain(|call| call.kind != CallKind::Claim);
    scene.finds(Promise::Explained, "was never handed out");
    scene.conditions.claims_answered = false;
    assert_eq!(scene.broken(), BTreeSet::new());
}

#[test]
fn an_expired_lease_needs_an_excuse() {
    let mut scene = Scene::of(
        submission(1),
        vec![claim(1), expire(), claim(2), complete(2)],
    );
    assert_eq!(scene.broken(), [Promise::Explained].into());
    let excuse = |worker: Option<&str>, from, until| Excuse {
        worker: worker.map(str::to_owned),
        from: at(from),
        until: at(until),
    };
    for (excuses, expected) in [
        (vec![excuse(Some(WORKER), 12, 13)], BTreeSet::new()),
        (vec![Excuse::always(None)], BTreeSet::new()),
        (
            vec![excuse(Some("another"), 12, 13)],
            [Promise::Explained].into(),
        ),
        (
            vec![excuse(Some(WORKER), 30, 31)],
            [Promise::Explained].into(),
        ),
    ] {
        scene.excuses = excuses;
        assert_eq!(scene.broken(), expected, "{:?}", scene.excuses);
    }
}

#[test]
fn a_lease_that_is_ended_early_is_found() {
    let mut scene = Scene::of(
        submission(1),
        vec![claim(1), expire(), claim(2), complete(2)],
    );
    scene.excuses = vec![Excuse::always(None)];
    scene.stored()[2].at = at(12);
    scene.finds(Promise::Rules, "was ended too early");
}

#[test]
fn an_unfinished_task_is_found() {
    let scene = Scene::of(submission(1), vec![claim(1)]);
    scene.finds(Promise::Ends, "is running in the end");
}

#[test]
fn a_missing_version_and_a_fork_are_found() {
    let mut scene = Scene::completed();
    scene.stored().remove(1);
    scene.finds(Promise::Rules, "was not made from");
    let mut scene = Scene::completed();
    let again = scene.stored()[1].clone();
    scene.stored().insert(2, again);
    scene.finds(Promise::Rules, "was not made from");
    let mut scene = Scene::completed();
    scene.stored().remove(0);
    assert_eq!(scene.broken(), [Promise::Rules].into());
}

#[test]
fn forbidden_changes_are_found() {
    type Forbidden = (usize, fn(&mut Task), &'static str);
    let cases: [Forbidden; 5] = [
        (1, |task| task.attempt = 2, "attempt 2 follows attempt 0"),
        (
            1,
            |task| task.created_at = at(99),
            "its creation time changed",
        ),
        (2, |task| task.retry_count = 1, "changed the retry count"),
        (2, |task| task.status = Status::Archived, "went from"),
        (1, |task| task.lease_id = None, "cannot be read"),
    ];
    for (number, change, text) in cases {
        let mut scene = Scene::completed();
        rewrite(&mut scene, number, change);
        scene.finds(Promise::Rules, text);
    }
    let mut scene = Scene::of(submission(1), vec![claim(1), renew(1), complete(1)]);
    rewrite(&mut scene, 2, |task| task.lease_id = Some(lease(9)));
    scene.finds(Promise::Rules, "a renewal changed the lease");
}

#[test]
fn an_operation_that_is_applied_twice_is_found() {
    let mut scene = Scene::of(submission(1), vec![claim(1), renew(1), complete(1)]);
    let claimed = decode(scene.stored()[1].body.as_ref().unwrap()).unwrap();
    rewrite(&mut scene, 2, |task| task.op_id = claimed.op_id);
    scene.finds(Promise::Rules, "was applied twice");
    scene.conditions.renewals_once = false;
    assert_eq!(scene.broken(), BTreeSet::new());
}

#[test]
fn a_claim_before_it_is_due_is_found() {
    let mut scene = Scene::completed();
    rewrite(&mut scene, 0, |task| task.available_at = at(60));
    scene.finds(Promise::Rules, "although it is due at");
    scene.conditions.punctual = false;
    assert_eq!(scene.broken(), BTreeSet::new());
}

#[test]
fn a_live_task_that_is_deleted_is_found() {
    let mut scene = Scene::of(submission(1), vec![claim(1)]);
    let mut gone = scene.stored()[1].clone();
    gone.body = None;
    scene.stored().push(gone);
    scene.finds(Promise::Rules, "was deleted while it was running");
}

#[test]
fn replies_that_fit_into_no_order_are_found() {
    let mut scene = Scene::completed();
    let first = scene.call(CallKind::Submit).clone();
    let mut stale = first.clone();
    stale.kind = CallKind::Get;
    (stale.called, stale.answered) = (40, Some(50));
    scene.calls.push(stale);
    scene.finds(Promise::OneAttempt, "fit into no order");
    assert!(matches!(
        first.reply,
        Reply::Done(Some(TaskView {
            status: Status::Pending,
            ..
        }))
    ));
}

#[test]
fn several_changes_in_one_write_need_an_engine_that_groups() {
    let mut scene = Scene::of(submission(1), vec![claim(1), complete(1)]);
    scene.stored().remove(0);
    assert_eq!(scene.broken(), [Promise::Rules].into());
    scene.conditions.grouped = true;
    // The submit is part of the claim's write now.
    scene.stored()[0].tick = 5;
    scene.call(CallKind::Submit).answered = Some(4);
    let checked = scene.check();
    let life = checked.lives.values().next().unwrap();
    assert_eq!(life.count(Step::Call(CallKind::Submit)), 1);
}

#[test]
fn left_over_objects_of_direct_mode_are_found() {
    let id = TaskId::from_random(1);
    let lease = format!("leases/{}/29387314/{id}", id.shard());
    let task = format!("tasks/{}/{id}.json", id.shard());
    let keys = [lease.clone(), task, "meta/signal.json".to_owned()];
    assert_eq!(left_over_keys(keys, &BTreeMap::new()), [lease]);
}
