//! A worker is killed while it runs a task, and another worker takes over.

use rustix::process::Signal;

use super::store::TestStore;

const HANDLER: &str = r#"work=if [ "$QO_ATTEMPT" = 1 ]; then touch started; exec sleep 120; fi; echo "$QO_WORKER_ID""#;

fn another_worker_takes_over(store: &TestStore) {
    let mut first = store.worker("w-1", &["--exec", HANDLER]);
    let id = store.submit("work", "null", &["--retry-initial", "50ms"]);
    store.wait_for_file("started");
    first.signal(Signal::KILL);
    assert!(!first.wait().success());

    let _second = store.worker("w-2", &["--exec", HANDLER]);
    let done = store.wait_for(&id, "completed");
    assert_eq!(done["attempt"], 2);
    assert_eq!(done["output"], "w-2");
    let lost = store
        .history(&id)
        .iter()
        .any(|event| event["from"] == "running" && event["to"] == "pending");
    assert!(lost, "the history contains the lost attempt");
}

on_both_stores!(another_worker_takes_over);
