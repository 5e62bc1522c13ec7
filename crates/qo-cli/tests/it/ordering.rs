//! Ordering keys on the command line.

use crate::workspace::Workspace;

fn submit(workspace: &Workspace, words: &[&str]) -> String {
    let words: Vec<&str> = ["submit", "--type", "sync"]
        .iter()
        .chain(words)
        .copied()
        .collect();
    let result = workspace.qo(&words);
    result.assert(0).stdout.trim_end().to_owned()
}

#[test]
fn status_says_what_a_task_waits_behind() {
    let workspace = Workspace::new();
    let key = ["--ordering-key", "account-17"];
    let head = submit(
        &workspace,
        &["--ordering-key", "account-17", "--on-failure", "stop"],
    );
    let (second, third) = (submit(&workspace, &key), submit(&workspace, &key));
    let first = workspace.qo(&["status", &head]);
    let text = &first.assert(0).stdout;
    assert!(text.contains("account-17, stops on failure"), "{text}");
    assert!(!text.contains("waits"), "{text}");
    let text = workspace.qo(&["status", &second]).assert(0).stdout.clone();
    assert!(text.contains(&format!("behind {head}")), "{text}");
    let text = workspace.qo(&["status", &third]).assert(0).stdout.clone();
    assert!(
        text.contains(&format!("behind {head} and 1 more")),
        "{text}"
    );
    let result = workspace.qo(&["status", "--json", &third]);
    let record: serde_json::Value = serde_json::from_str(&result.assert(0).stdout).unwrap();
    assert_eq!(record["ordering_key"], "account-17");
    assert_eq!(record["waits_for"]["behind"], head.as_str());
    assert_eq!(record["waits_for"]["ahead"], 2);
    // A task that leaves the line makes room for the next.
    workspace.qo(&["cancel", &head]).assert(0);
    let text = workspace.qo(&["status", &second]).assert(0).stdout.clone();
    assert!(!text.contains("waits"), "{text}");
}

#[test]
fn lines_have_ordering_keys_and_bad_ones_are_refused() {
    let workspace = Workspace::new();
    let lines = concat!(
        r#"{"input": 1, "ordering_key": "k", "on_failure": "stop"}"#,
        "\n",
        r#"{"input": 2, "ordering_key": "k", "on_failure": "explode"}"#,
        "\n",
        r#"{"input": 3, "ordering_key": ""}"#,
        "\n",
        r#"{"input": 4, "on_failure": "stop"}"#,
        "\n",
    );
    let words = ["submit", "--many", "-", "--full", "--type", "sync"];
    let result = workspace.qo_reading(&words, lines);
    assert_ne!(result.code, 0, "{result:?}");
    for (line, problem) in [
        (2, "continue or stop"),
        (3, "ordering key"),
        (4, "ordering_key"),
    ] {
        let expected = format!("line {line}:");
        let text = result.stderr.lines().find(|text| text.contains(&expected));
        assert!(
            text.is_some_and(|text| text.contains(problem)),
            "{result:?}"
        );
    }
    let long = "x".repeat(257);
    for words in [
        &["submit", "--type", "t", "--on-failure", "stop"][..],
        &[
            "submit",
            "--type",
            "t",
            "--ordering-key",
            "k",
            "--on-failure",
            "x",
        ],
        &["submit", "--type", "t", "--ordering-key", ""],
        &["submit", "--type", "t", "--ordering-key", &long],
    ] {
        let result = workspace.qo(words);
        assert_ne!(result.code, 0, "{result:?}");
    }
    assert_eq!(workspace.qo(&["list", "--json"]).lines("task").len(), 1);
}

#[test]
fn bad_keys_and_groups_are_refused_with_a_reason_and_write_nothing() {
    let workspace = Workspace::new();
    let long = "k".repeat(257);
    for (flag, value, reason) in [
        ("--ordering-key", long.as_str(), "ordering key"),
        ("--ordering-key", "", "ordering key"),
        ("--limit-key", "", "limit key"),
        ("--limit-key", "a b", "limit key"),
        ("--group", "", "group"),
    ] {
        let result = workspace.qo(&["submit", "--type", "sync", flag, value]);
        let text = &result.assert(2).stderr;
        assert!(text.contains(reason), "{flag}: {text}");
    }
    assert!(workspace.qo(&["list", "--json"]).lines("task").is_empty());
    let longest = "k".repeat(256);
    submit(&workspace, &["--ordering-key", &longest]);
}
