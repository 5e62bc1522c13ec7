//! Submit, work, look.

use super::place::Place;

fn a_task_is_submitted_done_and_looked_at(place: Place) {
    let id = place.submit("greet", r#"{"name":"Ada"}"#, &["--tag", "first"]);
    assert_eq!(place.task(&id)["status"], "pending");

    let _worker = place.worker(
        "w-1",
        &[
            "--exec",
            r#"greet=read -r input; printf '{"attempt":%s,"seen":%s}' "$QO_ATTEMPT" "$input""#,
        ],
    );
    let done = place.wait_for(&id, "completed");
    assert_eq!(done["attempt"], 1);
    assert_eq!(done["output"]["attempt"], 1);
    assert_eq!(done["output"]["seen"]["name"], "Ada");

    let story: Vec<_> = place
        .history(&id)
        .iter()
        .map(|event| event["to"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(story, ["pending", "running", "completed"]);

    let card = place.ok(["status", &id]);
    assert!(card.contains("completed") && card.contains("w-1"), "{card}");
    let table = place.ok(["list", "--tag", "first"]);
    assert!(table.contains(&id), "{table}");
    assert!(place.ok(["workers"]).contains("w-1"));
    let waited = place.ok(["wait", &id]);
    assert!(waited.contains("Ada"), "{waited}");
    let unknown = place.run(["status", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(unknown.status.code(), Some(3));
}

on_both_stores!(a_task_is_submitted_done_and_looked_at);
