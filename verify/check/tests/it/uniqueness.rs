//! Breaches of the rules for submits that find their key held, and for keys of purged tasks.

use qo_check::{Asked, Call, CallKind, Promise, Reply, StoredVersion, TaskView};
use qo_core::task::{IdempotencyScope, OnConflict};
use qo_core::transition::Idempotency;
use qo_core::{Action, Json, Payload, Submission, TaskId};

use crate::scene::{Scene, at, claim, complete, states, submission};

const OTHER: u128 = 9;

fn keyed() -> Submission {
    let mut keyed = submission(1);
    keyed.idempotency = Some(Idempotency {
        key: "k".parse().unwrap(),
        scope: IdempotencyScope::Global,
        until: None,
    });
    keyed
}

fn input() -> Json {
    Json::parse("7").unwrap()
}

fn actions() -> Vec<Action> {
    let amend = Action::Amend {
        input: Some(Payload::Inline(input())),
        available_at: Some(at(15)),
    };
    vec![amend, claim(1), complete(1)]
}

/// A task that a second submit with its key has amended.
fn amended(asked: Asked) -> Scene {
    let mut scene = Scene::of(keyed(), actions());
    let view = TaskView::of(&states(keyed(), actions())[1]);
    scene
        .calls
        .push(second(&scene, asked, Reply::Duplicate(view), 10));
    scene
}

fn second(scene: &Scene, asked: Asked, reply: Reply, called: u64) -> Call {
    Call {
        caller: 2,
        kind: CallKind::Submit,
        task: Some(scene.id()),
        lease: None,
        key: Some("k".parse().unwrap()),
        asked: Some(Box::new(asked)),
        called,
        answered: Some(called + 9),
        reply,
    }
}

fn asked(on_conflict: OnConflict) -> Asked {
    Asked {
        id: Some(TaskId::from_random(OTHER)),
        input: input(),
        due: at(15),
        on_conflict,
    }
}

#[test]
fn an_amendment_that_was_made_breaks_nothing() {
    for on_conflict in OnConflict::ALL {
        let scene = amended(asked(on_conflict));
        assert!(scene.broken().is_empty(), "{}", scene.check().breaches);
    }
}

#[test]
fn an_acknowledged_amendment_that_was_not_made_is_found() {
    let replacing = |on_conflict| Asked {
        input: Json::parse("8").unwrap(),
        ..asked(on_conflict)
    };
    amended(replacing(OnConflict::Replace)).finds(Promise::NothingLost, "another input");
    assert!(amended(replacing(OnConflict::Postpone)).broken().is_empty());
    let postponing = |on_conflict| Asked {
        due: at(19),
        ..asked(on_conflict)
    };
    amended(postponing(OnConflict::ReplaceAndPostpone)).finds(Promise::NothingLost, "due earlier");
    assert!(amended(postponing(OnConflict::Keep)).broken().is_empty());
    // A repeated submit finds its own task, and changes nothing.
    let own = Asked {
        id: Some(TaskId::from_random(1)),
        ..replacing(OnConflict::Replace)
    };
    assert!(amended(own).broken().is_empty());
}

#[test]
fn a_key_that_leads_to_a_purged_task_is_found() {
    let mut scene = Scene::of(keyed(), vec![claim(1), complete(1)]);
    let purged_at = at(30);
    scene.stored().push(StoredVersion {
        at: purged_at,
        tick: 35,
        body: None,
        damaged: false,
    });
    let mut purge = second(&scene, asked(OnConflict::Keep), Reply::Done(None), 30);
    purge.kind = CallKind::Purge;
    (purge.key, purge.asked) = (None, None);
    scene.calls.push(purge);
    assert!(scene.broken().is_empty(), "{}", scene.check().breaches);
    let view = TaskView::of(&states(keyed(), Vec::new())[0]);
    let submit = second(&scene, asked(OnConflict::Keep), Reply::Done(Some(view)), 40);
    scene.calls.push(submit);
    scene.finds(Promise::OneTask, "which was purged");
}
