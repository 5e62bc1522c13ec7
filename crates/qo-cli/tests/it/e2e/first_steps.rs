//! Submit a task, run it, read it.

use super::cli::TestCli;

fn a_task_is_submitted_run_and_read(cli: &TestCli) {
    let id = cli.submit("greet", r#"{"name":"Ada"}"#, &["--tag", "first"]);
    assert_eq!(cli.task(&id)["status"], "pending");

    let _worker = cli.worker(
        "w-1",
        &[
            "--exec",
            r#"greet=read -r input; printf '{"attempt":%s,"seen":%s}' "$QO_ATTEMPT" "$input""#,
        ],
    );
    let done = cli.wait_for(&id, "completed");
    assert_eq!(done["attempt"], 1);
    assert_eq!(done["output"]["attempt"], 1);
    assert_eq!(done["output"]["seen"]["name"], "Ada");

    let statuses: Vec<_> = cli
        .history(&id)
        .iter()
        .map(|event| event["to"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(statuses, ["pending", "running", "completed"]);

    let output = cli.ok(["status", &id]);
    assert!(
        output.contains("completed") && output.contains("w-1"),
        "{output}"
    );
    let table = cli.ok(["list", "--tag", "first"]);
    assert!(table.contains(&id), "{table}");
    assert!(cli.ok(["workers"]).contains("w-1"));
    let waited = cli.ok(["wait", &id]);
    assert!(waited.contains("Ada"), "{waited}");
    let unknown = cli.run(["status", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(3));
}

on_both_stores!(a_task_is_submitted_run_and_read);
