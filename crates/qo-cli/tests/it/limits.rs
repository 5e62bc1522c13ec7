//! Limits on the command line.

use serde_json::Value;

use crate::workspace::Workspace;

#[test]
fn a_limit_is_set_shown_and_removed() {
    let workspace = Workspace::new();
    let empty = workspace.qo(&["limit", "list"]);
    assert!(empty.assert(0).stderr.contains("no limits"), "{empty:?}");
    let words = [
        "limit",
        "set",
        "stripe",
        "--key",
        "stripe",
        "--concurrent",
        "5",
        "--starts",
        "100/1m",
        "--json",
    ];
    let set = workspace.qo(&words);
    let limit: Value = set.lines("limit").remove(0);
    assert_eq!(limit["starts"]["window_ms"], 60_000);
    workspace
        .qo(&[
            "limit",
            "set",
            "reports",
            "--type",
            "report",
            "--concurrent",
            "2",
        ])
        .assert(0);
    let list = workspace.qo(&["limit", "list"]).assert(0).stdout.clone();
    assert!(list.contains("key stripe"), "{list}");
    assert!(list.contains("5 at once, 100 starts in 1 min"), "{list}");
    assert!(list.contains("0 of 5 running, 0 of 100 started"), "{list}");
    assert_eq!(
        workspace
            .qo(&["limit", "list", "--json"])
            .lines("limit")
            .len(),
        2
    );
    let shown = workspace
        .qo(&["limit", "show", "reports"])
        .assert(0)
        .stdout
        .clone();
    assert!(
        shown.contains("type report") && shown.contains("2 at once"),
        "{shown}"
    );
    workspace.qo(&["limit", "remove", "reports"]).assert(0);
    let gone = workspace.qo(&["limit", "show", "reports"]);
    assert_ne!(gone.code, 0);
    assert!(gone.stderr.contains("qo limit list"), "{gone:?}");
}

#[test]
fn status_says_which_limit_a_task_waits_for() {
    let workspace = Workspace::new();
    workspace
        .qo(&[
            "limit", "set", "stripe", "--key", "stripe", "--starts", "1/1h",
        ])
        .assert(0);
    let submit = |n: &str| {
        let words = [
            "submit",
            "--type",
            "charge",
            "--input",
            n,
            "--limit-key",
            "stripe",
        ];
        workspace.qo(&words).assert(0).stdout.trim_end().to_owned()
    };
    let ids = [submit("1"), submit("2")];
    let words = ["worker", "--exec", "charge=true", "--exit-when-idle", "3s"];
    workspace.qo(&words).assert(0);
    let pending = workspace
        .qo(&["list", "--status", "pending", "--json"])
        .lines("task");
    assert_eq!(pending.len(), 1, "one of them has started: {pending:?}");
    let waiting = pending[0]["id"].as_str().unwrap();
    assert!(ids.iter().any(|id| id == waiting));
    let text = workspace.qo(&["status", waiting]).assert(0).stdout.clone();
    assert!(
        text.contains("limit stripe: 1 of 1 started, the next at "),
        "{text}"
    );
    let record = workspace.qo(&["status", "--json", waiting]).json("task");
    assert_eq!(record["limit_key"], "stripe");
    assert_eq!(record["waits_for"]["reason"], "limit");
    assert_eq!(record["waits_for"]["bound"], "starts");
    let list = workspace.qo(&["limit", "list"]).assert(0).stdout.clone();
    assert!(list.contains("1 of 1 started"), "{list}");
    let listed = workspace.qo(&["limit", "list", "--json"]).lines("limit");
    assert_eq!(listed[0]["usage"]["started"], 1, "{listed:?}");
    // Without the limit it runs.
    workspace.qo(&["limit", "remove", "stripe"]).assert(0);
    workspace.qo(&words).assert(0);
    let left = workspace
        .qo(&["list", "--status", "pending", "--json"])
        .lines("task");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn bad_limits_are_refused_and_write_nothing() {
    let workspace = Workspace::new();
    for (words, problem) in [
        (
            &["set", "a", "--concurrent", "5"][..],
            "--queue <QUEUE>|--type <TYPE>|--key <KEY>",
        ),
        (
            &["set", "a", "--queue", "q"],
            "--concurrent <N>|--starts <N/DURATION>",
        ),
        (
            &["set", "a", "--queue", "q", "--concurrent", "0"],
            "1..=10000",
        ),
        (
            &["set", "a", "--queue", "q", "--starts", "0/1m"],
            "starts.max",
        ),
        (&["set", "a", "--queue", "q", "--starts", "5"], "100/1m"),
        (
            &["set", "a", "--queue", "q", "--starts", "5/10ms"],
            "window_ms",
        ),
        (&["set", "a/b", "--queue", "q", "--concurrent", "1"], "a/b"),
        (
            &["set", "a", "--key", "a/b", "--concurrent", "1"],
            "limit key",
        ),
    ] {
        let all: Vec<&str> = ["limit"].iter().chain(words).copied().collect();
        let result = workspace.qo(&all);
        assert_ne!(result.code, 0, "{result:?}");
        assert!(result.stderr.contains(problem), "{problem}: {result:?}");
    }
    let long = "x".repeat(65);
    let submit = workspace.qo(&["submit", "--type", "t", "--limit-key", &long]);
    assert_ne!(submit.code, 0, "{submit:?}");
    assert!(submit.stderr.contains("too long"), "{submit:?}");
    assert!(
        workspace
            .qo(&["limit", "list", "--json"])
            .lines("limit")
            .is_empty()
    );
    assert!(workspace.qo(&["list", "--json"]).lines("task").is_empty());
}
