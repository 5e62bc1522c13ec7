//! `qo queue`, and what the settings do to commands.

use std::time::Duration;

use crate::workspace::Workspace;

#[test]
fn settings_are_set_shown_and_removed() {
    let workspace = Workspace::new();
    let none = workspace.qo(&["queue", "list"]);
    assert!(none.assert(0).stderr.contains("no queues"), "{none:#?}");
    let set = workspace.qo(&[
        "queue",
        "set",
        "mail",
        "--retries",
        "8",
        "--timeout",
        "90s",
        "--retention",
        "1d",
        "--max-wait",
        "250ms",
        "--max-waiting",
        "10",
    ]);
    assert!(set.assert(0).stderr.contains("retries 8"), "{set:#?}");
    let shown = workspace.qo(&["queue", "show", "mail", "--json"]);
    let shown = shown.assert(0).json("queue");
    assert_eq!(
        shown["settings"],
        serde_json::json!({
            "max_retries": 8, "timeout_seconds": 90, "retention_seconds": 86_400, "max_wait_ms": 250, "max_waiting": 10,
        })
    );
    // Only what is named changes.
    let changed = workspace.qo(&[
        "queue",
        "set",
        "mail",
        "--retries",
        "0",
        "--unset",
        "max-wait",
        "--json",
    ]);
    let changed = changed.assert(0).json("queue");
    assert_eq!(changed["settings"]["max_retries"], 0);
    assert_eq!(changed["settings"]["timeout_seconds"], 90);
    assert!(changed["settings"]["max_wait_ms"].is_null());
    let id = workspace
        .qo(&["submit", "--type", "t", "--queue", "mail"])
        .assert(0)
        .stdout
        .trim()
        .to_owned();
    let task = workspace
        .qo(&["status", &id, "--json"])
        .assert(0)
        .json("task");
    assert_eq!(
        (&task["max_retries"], &task["timeout_seconds"]),
        (&0.into(), &90.into())
    );
    let own = workspace.qo(&[
        "submit",
        "--type",
        "t",
        "--queue",
        "mail",
        "--retries",
        "3",
        "--timeout",
        "5m",
        "--json",
    ]);
    let own = own.assert(0).json("submitted");
    assert_eq!(
        (&own["task"]["max_retries"], &own["task"]["timeout_seconds"]),
        (&3.into(), &300.into())
    );
    let list = workspace.qo(&["queue", "list"]);
    assert!(list.assert(0).stdout.contains("2 of 10"), "{list:#?}");
    let line = workspace
        .qo(&["queue", "list", "--json"])
        .assert(0)
        .json("queue");
    assert_eq!(
        (&line["pending"], &line["queue"]),
        (&2.into(), &"mail".into())
    );
    workspace.qo(&["queue", "set", "mail", "--clear"]).assert(0);
    let shown = workspace.qo(&["queue", "show", "mail"]);
    assert!(shown.assert(0).stdout.contains("not set"), "{shown:#?}");
}

#[test]
fn a_full_queue_has_its_own_exit_code() {
    let workspace = Workspace::new();
    workspace
        .qo(&["queue", "set", "mail", "--max-waiting", "1"])
        .assert(0);
    let submit = ["submit", "--type", "t", "--queue", "mail"];
    let first = workspace.qo(&submit).assert(0).stdout.trim().to_owned();
    let full = workspace.qo(&submit);
    assert!(full.assert(10).stderr.contains("is full"), "{full:#?}");
    let json = workspace.qo(&["submit", "--type", "t", "--queue", "mail", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.assert(10).stderr).unwrap();
    assert_eq!(json["error"]["kind"], "queue_full");
    assert!(json["error"]["hint"].as_str().unwrap().contains("qo queue"));
    // The same task again is no new one, and another queue has room.
    workspace
        .qo(&["submit", "--type", "t", "--queue", "mail", "--id", &first])
        .assert(0);
    workspace.qo(&["submit", "--type", "t"]).assert(0);
    workspace.qo(&["cancel", &first]).assert(0);
    workspace.qo(&submit).assert(0);
}

#[test]
fn a_worker_fails_tasks_that_waited_too_long() {
    let workspace = Workspace::new();
    workspace
        .qo(&["queue", "set", "quotes", "--max-wait", "1ms"])
        .assert(0);
    let id = workspace
        .qo(&["submit", "--type", "t", "--queue", "quotes"])
        .assert(0)
        .stdout
        .trim()
        .to_owned();
    std::thread::sleep(Duration::from_millis(50));
    let worker = workspace.start(&["worker", "--queue", "quotes", "--exec", "t=cat"]);
    let waited = workspace.qo(&["wait", &id, "--timeout", "60"]);
    assert!(
        waited.assert(8).stderr.contains("waited longer than 1 ms"),
        "{waited:#?}"
    );
    drop(worker);
}

#[test]
fn bad_settings_are_refused_with_a_reason() {
    let workspace = Workspace::new();
    for (words, reason) in [
        (&["mail", "--max-waiting", "0"][..], "--max-waiting"),
        (&["mail", "--max-waiting=-1"], "--max-waiting"),
        (&["mail", "--retries=-1"], "--retries"),
        (&["mail", "--retries", "10001"], "--retries"),
        (&["mail", "--timeout", "0s"], "--timeout"),
        (&["mail", "--timeout", "31d"], "timeout_seconds"),
        (&["mail", "--max-wait", "0"], "--max-wait"),
        (&["mail", "--unset", "colour"], "--unset"),
        (&["mail", "--retries", "3", "--unset", "retries"], "at once"),
        (&["mail"], "nothing to set"),
        (&["a/b", "--retries", "3"], "queue name"),
    ] {
        let words: Vec<&str> = ["queue", "set"].iter().chain(words).copied().collect();
        let result = workspace.qo(&words);
        assert!(result.assert(2).stderr.contains(reason), "{result:#?}");
    }
    let long = "x".repeat(65);
    workspace
        .qo(&["queue", "set", &long, "--retries", "3"])
        .assert(2);
    assert_eq!(
        workspace.qo(&["queue", "list", "--json"]).assert(0).stdout,
        ""
    );
}
