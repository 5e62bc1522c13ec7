//! Keys that are held for part of a task's life, through the command.

use crate::workspace::Workspace;

const KEY: [&str; 6] = [
    "submit",
    "--type",
    "build",
    "--json",
    "--idempotency-key",
    "index/7",
];

fn submit(workspace: &Workspace, words: &[&str]) -> serde_json::Value {
    let words: Vec<&str> = KEY.iter().chain(words).copied().collect();
    workspace.qo(&words).assert(0).json("submitted")
}

#[test]
fn a_waiting_task_is_replaced_and_postponed() {
    let workspace = Workspace::new();
    let debounce = [
        "--idempotency-hold",
        "waiting",
        "--on-conflict",
        "replace-and-postpone",
        "--delay",
    ];
    let with = |delay: &'static str, input: &'static str| {
        let words = debounce.iter().copied();
        words.chain([delay, "--input", input]).collect::<Vec<_>>()
    };
    let first = submit(&workspace, &with("1h", "{\"version\": 1.0}"));
    assert_eq!(first["duplicate"], false);
    let second = submit(&workspace, &with("2h", "{\"version\": 2.0}"));
    assert_eq!(second["duplicate"], true);
    let id = first["task"]["id"].as_str().unwrap();
    assert_eq!(second["task"]["id"], id);
    let stored = workspace
        .qo(&["status", id, "--json"])
        .assert(0)
        .json("task");
    assert_eq!(stored["input"]["version"], 2.0);
    assert_eq!(stored["idempotency_hold"], "waiting");
    assert!(stored["available_at"].as_str() > first["task"]["available_at"].as_str());
    let shown = workspace.qo(&["status", id]);
    assert!(
        shown.assert(0).stdout.contains("held until it is started"),
        "{shown:#?}"
    );
    let history = workspace.qo(&["history", id]);
    assert!(
        history.assert(0).stdout.contains("postponed"),
        "{history:#?}"
    );
    // A key of a cancelled task is free.
    workspace.qo(&["cancel", id]).assert(0);
    let third = submit(&workspace, &with("1h", "3"));
    assert_eq!(third["duplicate"], false);
    let many = workspace.file(
        "many.jsonl",
        "{\"type\":\"build\",\"idempotency_key\":\"index/7\",\"idempotency_hold\":\"waiting\",\"on_conflict\":\"replace\",\"input\":4}\n",
    );
    let many = format!("{}", many.display());
    workspace
        .qo(&["submit", "--many", &many, "--full"])
        .assert(0);
    let id = third["task"]["id"].as_str().unwrap();
    let stored = workspace
        .qo(&["status", id, "--json"])
        .assert(0)
        .json("task");
    assert_eq!(stored["input"], 4);
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let workspace = Workspace::new();
    for (words, reason) in [
        (&["--idempotency-hold", "sometimes"][..], "expected kept"),
        (&["--on-conflict", "fight"], "expected keep"),
        (&["--on-conflict", "postpone"], "--delay or --at"),
    ] {
        let words: Vec<&str> = KEY.iter().chain(words).copied().collect();
        let result = workspace.qo(&words);
        assert!(result.assert(2).stderr.contains(reason), "{result:#?}");
    }
    let without = workspace.qo(&["submit", "--type", "t", "--on-conflict", "replace"]);
    without.assert(2);
    assert_eq!(workspace.qo(&["list", "--json"]).assert(0).stdout, "");
}
