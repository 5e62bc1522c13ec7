//! Doing something with tasks, by id and by filter.

use crate::place::Place;

fn status(place: &Place, id: &str) -> String {
    let task = place.qo(&["status", id, "--json"]).json("task");
    task["status"].as_str().unwrap().to_owned()
}

#[test]
fn one_task_through_all_of_them() {
    let place = Place::new();
    let id = place.submit("t");
    for (words, after) in [
        (&["cancel", "--reason", "not needed"][..], "cancelled"),
        (&["archive"], "archived"),
        (&["unarchive"], "cancelled"),
        (&["replay"], "pending"),
    ] {
        let words: Vec<&str> = words.iter().copied().chain([id.as_str()]).collect();
        let ran = place.qo(&words);
        assert!(ran.assert(0).stdout.contains(&id), "{ran:#?}");
        assert_eq!(status(&place, &id), after);
    }
    let reasons = place.qo(&["history", &id]);
    assert!(reasons.stdout.contains("not needed"), "{reasons:#?}");
    // A task that waits can be neither replayed, nor archived, nor purged.
    for command in ["replay", "archive", "unarchive", "purge"] {
        let ran = place.qo(&[command, &id, "--json"]);
        let report = ran.assert(4).json("bulk-report");
        assert_eq!(report["done"], 0);
        assert_eq!(report["failed"][0]["error"]["kind"], "conflict");
    }
    place.qo(&["cancel", &id]).assert(0);
    place.qo(&["purge", &id]).assert(0);
    place.qo(&["status", &id]).assert(3);
}

#[test]
fn several_ids_are_each_answered_for() {
    let place = Place::new();
    let (one, two) = (place.submit("t"), place.submit("t"));
    let missing = "550e8400-e29b-41d4-a716-446655440000";
    place.qo(&["cancel", &one]).assert(0);
    // One is cancelled already, one waits, one is not there: failures of two sorts have the general code.
    let ran = place.qo(&["cancel", &one, &two, missing, "--json"]);
    let report = ran.assert(1).json("bulk-report");
    assert_eq!(report["matched"], 3);
    assert_eq!(report["done"], 1);
    assert_eq!(status(&place, &two), "cancelled");
    let ran = place.qo(&["replay", &one, missing]);
    assert!(ran.assert(3).stderr.contains("1 task replayed"), "{ran:#?}");
}

#[test]
fn a_filter_is_counted_first_and_nothing_is_done_unless_somebody_agrees() {
    let place = Place::new();
    for _ in 0..3 {
        place.submit("mail");
    }
    let kept = place.submit("other");
    let ran = place.qo(&["cancel", "--type", "mail"]);
    assert!(
        ran.assert(2).stderr.contains("3 tasks match: 3 pending"),
        "{ran:#?}"
    );
    assert!(ran.stderr.contains("--yes"), "{ran:#?}");
    let dry = place.qo(&["cancel", "--type", "mail", "--dry-run", "--json"]);
    let report = dry.assert(0).json("bulk-report");
    assert_eq!(report["matched"], 3);
    assert_eq!(report["statuses"]["pending"], 3);
    assert_eq!(report["dry_run"], true);
    let pending = |place: &Place| {
        place
            .qo(&["list", "--status", "pending", "--json"])
            .lines("task")
            .len()
    };
    assert_eq!(pending(&place), 4);
    let ran = place.qo(&["cancel", "--type", "mail", "--yes", "--json"]);
    assert_eq!(ran.assert(0).json("bulk-report")["done"], 3);
    assert_eq!(status(&place, &kept), "pending");
    let ran = place.qo(&["replay", "--status", "cancelled", "--yes"]);
    assert!(
        ran.assert(0).stderr.contains("3 tasks replayed"),
        "{ran:#?}"
    );
    assert_eq!(pending(&place), 4);
}

#[test]
fn a_filter_that_nothing_matches_and_words_that_contradict_each_other() {
    let place = Place::new();
    let id = place.submit("t");
    assert_eq!(
        place
            .qo(&["replay", "--all", "--yes", "--json"])
            .assert(3)
            .error()["kind"],
        "not_found"
    );
    for words in [
        &["replay"][..],
        &["replay", &id, "--type", "t"],
        &["replay", &id, "--all"],
        &["purge", "--older-than", "1d", "--queue", "q", "--yes"],
        &["purge", "--older-than", "long", "--yes"],
    ] {
        place.qo(words).assert(2);
    }
}

#[test]
fn only_what_is_old_is_purged() {
    let place = Place::new();
    let id = place.submit("t");
    place.qo(&["cancel", &id]).assert(0);
    place
        .qo(&["purge", "--older-than", "1h", "--yes"])
        .assert(3);
    assert_eq!(status(&place, &id), "cancelled");
    let ran = place.qo(&[
        "purge",
        "--older-than",
        "0",
        "--status",
        "cancelled",
        "--yes",
        "--json",
    ]);
    assert_eq!(ran.assert(0).json("bulk-report")["done"], 1);
    place.qo(&["status", &id]).assert(3);
}
