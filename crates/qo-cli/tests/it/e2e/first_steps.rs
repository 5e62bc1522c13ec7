//! Submit a task, run it, read it.

use super::store::TestStore;

fn a_task_is_submitted_run_and_read(store: &TestStore) {
    let id = store.submit("greet", r#"{"name":"Ada"}"#, &["--tag", "first"]);
    assert_eq!(store.task(&id)["status"], "pending");

    let _worker = store.worker(
        "w-1",
        &[
            "--exec",
            r#"greet=read -r input; printf '{"attempt":%s,"seen":%s}' "$QO_ATTEMPT" "$input""#,
        ],
    );
    let done = store.wait_for(&id, "completed");
    assert_eq!(done["attempt"], 1);
    assert_eq!(done["output"]["attempt"], 1);
    assert_eq!(done["output"]["seen"]["name"], "Ada");

    let statuses: Vec<_> = store
        .history(&id)
        .iter()
        .map(|event| event["to"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(statuses, ["pending", "running", "completed"]);

    let output = store.ok(["status", &id]);
    assert!(
        output.contains("completed") && output.contains("w-1"),
        "{output}"
    );
    let table = store.ok(["list", "--tag", "first"]);
    assert!(table.contains(&id), "{table}");
    assert!(store.ok(["workers"]).contains("w-1"));
    let waited = store.ok(["wait", &id]);
    assert!(waited.contains("Ada"), "{waited}");
    let unknown = store.run(["status", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(3));
}

on_both_stores!(a_task_is_submitted_run_and_read);
