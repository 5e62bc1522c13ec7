//! Groups and their weights on the command line.

use crate::workspace::Workspace;

/// Submits tasks of a group in one call, so that one process gives them their places.
fn submit(workspace: &Workspace, group: &str, count: usize) {
    let words = [
        "submit", "--type", "import", "--queue", "imports", "--group", group, "--many", "-",
    ];
    let lines: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    workspace.qo_reading(&words, &lines.join("\n")).assert(0);
}

/// Runs all tasks one after the other. Returns their groups in the order in which they started.
fn run(workspace: &Workspace, count: usize) -> Vec<String> {
    let count = count.to_string();
    let words = [
        "worker",
        "--queue",
        "imports",
        "--exec",
        "import=cat",
        "--concurrency",
        "1",
        "--max-tasks",
        &count,
    ];
    workspace.qo(&words).assert(0);
    let mut tasks = workspace
        .qo(&["list", "--queue", "imports", "--all", "--json"])
        .lines("task");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    tasks.sort_by_key(|task| text(&task["started_at"]));
    let groups = tasks.iter().map(|task| text(&task["fairness_group"]));
    groups.collect()
}

/// How many tasks of `acme` come before the n-th of `globex`.
fn before(groups: &[String], number: usize) -> usize {
    let others = groups.iter().filter(|group| *group == "globex");
    assert!(others.count() >= number, "{groups:?}");
    let mut left = number;
    let until = groups.iter().take_while(|group| {
        left -= usize::from(*group == "globex");
        left > 0
    });
    until.filter(|group| *group == "acme").count()
}

#[test]
fn groups_are_served_in_turn() {
    let workspace = Workspace::new();
    submit(&workspace, "acme", 8);
    submit(&workspace, "globex", 3);
    let groups = run(&workspace, 11);
    // Tasks of the same rank run in any order.
    for number in 1..=3 {
        assert!(before(&groups, number) <= number, "{groups:?}");
    }
    assert_eq!(groups.len(), 11);
}

#[test]
fn a_weight_gives_a_group_more_turns() {
    let workspace = Workspace::new();
    let set = ["queue", "set", "imports", "--weight", "acme=4"];
    workspace.qo(&set).assert(0);
    submit(&workspace, "acme", 10);
    submit(&workspace, "globex", 2);
    let groups = run(&workspace, 12);
    assert!((4..=5).contains(&before(&groups, 2)), "{groups:?}");
    let shown = workspace
        .qo(&["queue", "show", "imports"])
        .assert(0)
        .stdout
        .clone();
    assert!(shown.contains("acme"), "{shown}");
    let unset = ["queue", "set", "imports", "--unset", "weights", "--json"];
    let settings = workspace.qo(&unset).assert(0).json("queue");
    assert!(
        settings["settings"]["group_weights"].is_null(),
        "{settings}"
    );
}

#[test]
fn the_group_is_shown_and_each_line_can_have_its_own() {
    let workspace = Workspace::new();
    let lines = concat!(
        r#"{"input": 1, "group": "globex"}"#,
        "\n",
        r#"{"input": 2}"#,
        "\n",
        r#"{"input": 3, "group": "no/slash"}"#,
        "\n",
    );
    let words = [
        "submit", "--type", "import", "--group", "acme", "--many", "-", "--full",
    ];
    let result = workspace.qo_reading(&words, lines);
    assert_ne!(result.code, 0);
    assert!(result.stderr.contains("line 3"), "{result:?}");
    let tasks = workspace.qo(&["list", "--json"]).lines("task");
    let mut groups: Vec<&str> = tasks
        .iter()
        .map(|task| task["fairness_group"].as_str().unwrap())
        .collect();
    groups.sort_unstable();
    assert_eq!(groups, ["acme", "globex"]);
    let id = tasks[0]["id"].as_str().unwrap();
    let text = workspace.qo(&["status", id]).assert(0).stdout.clone();
    let group = tasks[0]["fairness_group"].as_str().unwrap();
    assert!(text.contains(group), "{text}");
}

#[test]
fn bad_groups_and_weights_are_refused_and_write_nothing() {
    let workspace = Workspace::new();
    let long = "x".repeat(65);
    for group in ["no/slash", "", ".hidden", &long] {
        let result = workspace.qo(&["submit", "--type", "import", "--group", group]);
        assert!(result.assert(2).stderr.contains("group"), "{result:?}");
        let words = [
            "schedule", "add", "s", "--every", "1h", "--type", "import", "--group", group,
        ];
        let result = workspace.qo(&words);
        assert!(result.assert(2).stderr.contains("group"), "{result:?}");
    }
    for (weight, problem) in [
        ("acme", "such as big-tenant=3"),
        ("acme=0", "1 to 1000"),
        ("acme=1001", "1 to 1000"),
        ("no/slash=2", "group"),
    ] {
        let result = workspace.qo(&["queue", "set", "imports", "--weight", weight]);
        assert!(result.assert(2).stderr.contains(problem), "{result:?}");
    }
    assert!(workspace.qo(&["list", "--json"]).lines("task").is_empty());
    assert!(
        workspace
            .qo(&["queue", "list", "--json"])
            .lines("queue")
            .is_empty()
    );
    assert!(
        workspace
            .qo(&["schedule", "list", "--json"])
            .lines("schedule")
            .is_empty()
    );
}

#[test]
fn the_task_of_a_schedule_keeps_its_group_and_its_limit_key() {
    let workspace = Workspace::new();
    let words = [
        "schedule",
        "add",
        "sync-acme",
        "--every",
        "1h",
        "--type",
        "import",
        "--queue",
        "imports",
        "--group",
        "acme",
        "--limit-key",
        "stripe",
    ];
    workspace.qo(&words).assert(0);
    let shown = workspace.qo(&["schedule", "show", "sync-acme"]);
    let shown = &shown.assert(0).stdout;
    assert!(
        shown.contains("acme") && shown.contains("stripe"),
        "{shown}"
    );
    let task = workspace.qo(&["schedule", "trigger", "sync-acme"]);
    let task = task.assert(0).stdout.trim().to_owned();
    let stored = workspace.qo(&["status", &task, "--json"]).json("task");
    assert_eq!(stored["fairness_group"], "acme");
    assert_eq!(stored["limit_key"], "stripe");
    // The same in the settings file.
    let settings = "[schedules.nightly]\nevery = \"1h\"\ntype = \"import\"\ngroup = \"globex\"\nlimit_key = \"stripe\"\n";
    workspace.file("qo.toml", settings);
    let worker = ["worker", "--exec", "other=cat", "--exit-when-idle", "1s"];
    workspace.qo(&worker).assert(0);
    let stored = workspace
        .qo(&["schedule", "show", "nightly", "--json"])
        .json("schedule");
    assert_eq!(stored["spec"]["task"]["fairness_group"], "globex");
    assert_eq!(stored["spec"]["task"]["limit_key"], "stripe");
}
