//! Operator commands, by id and by filter.

use crate::workspace::Workspace;

fn status(workspace: &Workspace, id: &str) -> String {
    let task = workspace.qo(&["status", id, "--json"]).json("task");
    task["status"].as_str().unwrap().to_owned()
}

#[test]
fn one_task_goes_through_every_operation() {
    let workspace = Workspace::new();
    let id = workspace.submit("t");
    for (words, after) in [
        (&["cancel", "--reason", "not needed"][..], "cancelled"),
        (&["archive"], "archived"),
        (&["unarchive"], "cancelled"),
        (&["replay"], "pending"),
    ] {
        let words: Vec<&str> = words.iter().copied().chain([id.as_str()]).collect();
        let result = workspace.qo(&words);
        assert!(result.assert(0).stdout.contains(&id), "{result:#?}");
        assert_eq!(status(&workspace, &id), after);
    }
    let reasons = workspace.qo(&["history", &id]);
    assert!(reasons.stdout.contains("not needed"), "{reasons:#?}");
    // A pending task can be neither replayed, nor archived, nor purged.
    for command in ["replay", "archive", "unarchive", "purge"] {
        let result = workspace.qo(&[command, &id, "--json"]);
        let report = result.assert(4).json("bulk-report");
        assert_eq!(report["done"], 0);
        assert_eq!(report["failed"][0]["error"]["kind"], "conflict");
    }
    workspace.qo(&["cancel", &id]).assert(0);
    workspace.qo(&["purge", &id]).assert(0);
    workspace.qo(&["status", &id]).assert(3);
}

#[test]
fn each_id_has_its_own_result() {
    let workspace = Workspace::new();
    let (one, two) = (workspace.submit("t"), workspace.submit("t"));
    let missing = "550e8400-e29b-41d4-a716-446655440000";
    workspace.qo(&["cancel", &one]).assert(0);
    // One task is already cancelled, one is pending, one does not exist. Failures of two kinds give the general exit code.
    let result = workspace.qo(&["cancel", &one, &two, missing, "--json"]);
    let report = result.assert(1).json("bulk-report");
    assert_eq!(report["matched"], 3);
    assert_eq!(report["done"], 1);
    assert_eq!(status(&workspace, &two), "cancelled");
    let result = workspace.qo(&["replay", &one, missing]);
    assert!(
        result.assert(3).stderr.contains("1 task replayed"),
        "{result:#?}"
    );
}

#[test]
fn a_filter_counts_first_and_needs_confirmation() {
    let workspace = Workspace::new();
    for _ in 0..3 {
        workspace.submit("mail");
    }
    let kept = workspace.submit("other");
    let result = workspace.qo(&["cancel", "--type", "mail"]);
    assert!(
        result.assert(2).stderr.contains("3 tasks match: 3 pending"),
        "{result:#?}"
    );
    assert!(result.stderr.contains("--yes"), "{result:#?}");
    let dry = workspace.qo(&["cancel", "--type", "mail", "--dry-run", "--json"]);
    let report = dry.assert(0).json("bulk-report");
    assert_eq!(report["matched"], 3);
    assert_eq!(report["statuses"]["pending"], 3);
    assert_eq!(report["dry_run"], true);
    let pending = |workspace: &Workspace| {
        workspace
            .qo(&["list", "--status", "pending", "--json"])
            .lines("task")
            .len()
    };
    assert_eq!(pending(&workspace), 4);
    let result = workspace.qo(&["cancel", "--type", "mail", "--yes", "--json"]);
    assert_eq!(result.assert(0).json("bulk-report")["done"], 3);
    assert_eq!(status(&workspace, &kept), "pending");
    let result = workspace.qo(&["replay", "--status", "cancelled", "--yes"]);
    assert!(
        result.assert(0).stderr.contains("3 tasks replayed"),
        "{result:#?}"
    );
    assert_eq!(pending(&workspace), 4);
}

#[test]
fn a_filter_without_matches_and_contradictory_arguments_are_errors() {
    let workspace = Workspace::new();
    let id = workspace.submit("t");
    assert_eq!(
        workspace
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
        &["cancel", "--owner", "ada", "--yes"],
        &["cancel", "--status", "waiting", "--yes"],
    ] {
        workspace.qo(words).assert(2);
    }
}

#[test]
fn only_old_tasks_are_purged() {
    let workspace = Workspace::new();
    let id = workspace.submit("t");
    workspace.qo(&["cancel", &id]).assert(0);
    workspace
        .qo(&["purge", "--older-than", "1h", "--yes"])
        .assert(3);
    assert_eq!(status(&workspace, &id), "cancelled");
    let result = workspace.qo(&[
        "purge",
        "--older-than",
        "0",
        "--status",
        "cancelled",
        "--yes",
        "--json",
    ]);
    assert_eq!(result.assert(0).json("bulk-report")["done"], 1);
    workspace.qo(&["status", &id]).assert(3);
}

/// Submits a task that is due in an hour.
fn submit_delayed(workspace: &Workspace, task_type: &str) -> String {
    let result = workspace.qo(&["submit", "--type", task_type, "--delay", "1h"]);
    result.assert(0).stdout.trim().to_owned()
}

fn is_due(workspace: &Workspace, id: &str) -> bool {
    let task = workspace.qo(&["status", id, "--json"]).json("task");
    let at = |field: &str| -> qo::Timestamp { task[field].as_str().unwrap().parse().unwrap() };
    at("available_at") < at("created_at").plus_millis(3_600_000)
}

#[test]
fn run_now_makes_delayed_tasks_due_by_id() {
    let workspace = Workspace::new();
    let delayed = submit_delayed(&workspace, "t");
    assert!(!is_due(&workspace, &delayed));
    let result = workspace.qo(&["run-now", &delayed]);
    assert_eq!(result.assert(0).stdout, format!("{delayed} made due\n"));
    assert!(is_due(&workspace, &delayed));
    let history = workspace.qo(&["history", &delayed, "--json"]);
    assert_eq!(history.lines("event").len(), 2);
    // It is due already now, like a task without a delay. Neither is changed.
    let due = workspace.submit("t");
    for id in [&delayed, &due] {
        let result = workspace.qo(&["run-now", id, "--json"]);
        let report = result.assert(4).json("bulk-report");
        assert_eq!(report["operation"], "run_now");
        assert_eq!(report["failed"][0]["error"]["kind"], "conflict");
    }
    let missing = "550e8400-e29b-41d4-a716-446655440000";
    workspace.qo(&["run-now", missing]).assert(3);
    workspace.qo(&["run-now"]).assert(2);
}

#[test]
fn redrive_moves_tasks_to_another_queue() {
    let workspace = Workspace::new();
    let by_id = workspace.submit("t");
    let result = workspace.qo(&["redrive", &by_id, "--to", "mail"]);
    assert_eq!(result.assert(0).stdout, format!("{by_id} moved\n"));
    let queue_of = |id: &str| {
        let task = workspace.qo(&["status", id, "--json"]).json("task");
        task["queue"].as_str().unwrap().to_owned()
    };
    assert_eq!(queue_of(&by_id), "mail");
    // A second time it is there already, and nothing changes.
    let result = workspace.qo(&["redrive", &by_id, "--to", "mail", "--json"]);
    let report = result.assert(4).json("bulk-report");
    assert_eq!(report["operation"], "redrive");
    assert_eq!(report["failed"][0]["error"]["kind"], "conflict");
    let history = workspace.qo(&["history", &by_id, "--json"]);
    let events = history.lines("event");
    assert_eq!(
        (events.len(), &events[1]["action"]),
        (2, &"redriven".into())
    );
    assert_eq!(events[1]["error"], "moved from queue default to mail");
    assert!(events[1]["by"].is_string());

    let by_filter = [workspace.submit("t"), workspace.submit("t")];
    workspace.submit("other");
    let select = ["redrive", "--type", "t", "--to", "mail"];
    let result = workspace.qo(&[&select[..], &["--dry-run"]].concat());
    let sentence = "2 tasks match: 2 pending";
    assert!(result.assert(0).stdout.contains(sentence), "{result:#?}");
    let result = workspace.qo(&[&select[..], &["--yes"]].concat());
    assert!(
        result.assert(0).stderr.contains("2 tasks moved"),
        "{result:#?}"
    );
    for id in &by_filter {
        assert_eq!(queue_of(id), "mail");
    }
    // Nothing is left to move, and a queue must be named.
    workspace.qo(&[&select[..], &["--yes"]].concat()).assert(3);
    workspace.qo(&["redrive", &by_id]).assert(2);
    workspace
        .qo(&["redrive", &by_id, "--to", "not/valid"])
        .assert(2);
    // A worker of the other queue runs them.
    let worker = [
        "worker",
        "--queue",
        "mail",
        "--exec",
        "t=cat",
        "--exit-when-idle",
        "100ms",
    ];
    workspace.qo(&worker).assert(0);
    for id in &by_filter {
        let task = workspace.qo(&["status", id, "--json"]).json("task");
        assert_eq!(task["status"], "completed");
    }
}

#[test]
fn run_now_by_filter_selects_only_tasks_that_wait() {
    let workspace = Workspace::new();
    let delayed = [
        submit_delayed(&workspace, "mail"),
        submit_delayed(&workspace, "mail"),
    ];
    let other = submit_delayed(&workspace, "other");
    workspace.submit("mail");
    let result = workspace.qo(&["run-now", "--type", "mail", "--dry-run", "--json"]);
    let report = result.assert(0).json("bulk-report");
    assert_eq!(
        (&report["matched"], &report["done"]),
        (&2.into(), &0.into())
    );
    let result = workspace.qo(&["run-now", "--type", "mail"]);
    assert!(
        result.assert(2).stderr.contains("2 tasks match: 2 pending"),
        "{result:#?}"
    );
    let result = workspace.qo(&["run-now", "--type", "mail", "--yes"]);
    assert!(
        result.assert(0).stderr.contains("2 tasks made due"),
        "{result:#?}"
    );
    for id in &delayed {
        assert!(is_due(&workspace, id));
    }
    assert!(!is_due(&workspace, &other));
    // Nothing is left to do.
    workspace
        .qo(&["run-now", "--type", "mail", "--yes"])
        .assert(3);
}

#[test]
fn the_history_names_who_ran_the_command() {
    let workspace = Workspace::new();
    let id = workspace.submit("t");
    let named = workspace.qo_with(&[("QO_ACTOR", "ada@laptop")], &["cancel", &id]);
    named.assert(0);
    let replayed = workspace.qo_with(
        &[("USER", "grace")],
        &["replay", "--all", "--status", "cancelled", "--yes"],
    );
    replayed.assert(0);
    let events = workspace.qo(&["history", &id, "--json"]).lines("event");
    let by: Vec<_> = events.iter().map(|event| event["by"].as_str()).collect();
    assert_eq!(by[..2], [None, Some("ada@laptop")], "{events:#?}");
    assert!(
        by[2].is_some_and(|by| by.starts_with("grace")),
        "{events:#?}"
    );
    let table = workspace.qo(&["history", &id]);
    assert!(table.assert(0).stdout.contains("ada@laptop"), "{table:#?}");
}

#[test]
fn a_search_selects_exactly_what_it_says_and_an_unknown_field_is_refused() {
    let workspace = Workspace::new();
    let id = |words: &[&str]| {
        let words: Vec<&str> = ["submit"].iter().chain(words).copied().collect();
        workspace.qo(&words).assert(0).stdout.trim().to_owned()
    };
    let mail = id(&["--type", "mail.send", "--queue", "fast"]);
    let bulk = id(&["--type", "mail.send", "--queue", "bulk"]);
    let vip = id(&["--type", "report", "--queue", "bulk", "--tag", "vip"]);
    let later = id(&["--type", "sms", "--queue", "fast", "--delay", "1h"]);
    for (search, mut expected) in [
        ("type:mail*,sms -queue:bulk", vec![&mail, &later]),
        ("type:mail* queue:bulk or tag:vip", vec![&bulk, &vip]),
        ("status:scheduled", vec![&later]),
        ("-status:scheduled since:1h", vec![&mail, &bulk, &vip]),
        ("until:1h", vec![]),
    ] {
        let result = workspace.qo(&["list", "--search", search, "--json"]);
        let tasks = result.assert(0).lines("task");
        let mut found: Vec<_> = tasks
            .iter()
            .map(|task| task["id"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{search}");
    }
    for wrong in ["tpye:mail", "mail", "-id:7", "type:a type:b", "type:a or"] {
        for command in ["list", "cancel", "errors"] {
            workspace.qo(&[command, "--search", wrong]).assert(2);
        }
    }
    let words = ["cancel", "--search", "type:mail* -queue:bulk", "--yes"];
    workspace.qo(&words).assert(0);
    for (task, expected) in [
        (&mail, "cancelled"),
        (&bulk, "pending"),
        (&vip, "pending"),
        (&later, "pending"),
    ] {
        assert_eq!(status(&workspace, task), expected);
    }
    for filter in [["--until", "1h"], ["--search", "type:a"]] {
        let words = ["purge", "--older-than", "1d", filter[0], filter[1]];
        workspace.qo(&words).assert(2);
    }
}
