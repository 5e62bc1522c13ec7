//! A worker is killed while it runs a task, and another worker takes over.

use rustix::process::Signal;

use super::cli::TestCli;

const HANDLER: &str = r#"work=if [ "$QO_ATTEMPT" = 1 ]; then touch started; exec sleep 120; fi; echo "$QO_WORKER_ID""#;

fn another_worker_takes_over(cli: &TestCli) {
    let mut first = cli.worker("w-1", &["--exec", HANDLER]);
    let id = cli.submit("work", "null", &["--retry-initial", "50ms"]);
    cli.wait_for_file("started");
    first.signal(Signal::KILL);
    assert!(!first.wait().success());

    let _second = cli.worker("w-2", &["--exec", HANDLER]);
    let done = cli.wait_for(&id, "completed");
    assert_eq!(done["attempt"], 2);
    assert_eq!(done["output"], "w-2");
    let lost = cli
        .history(&id)
        .iter()
        .any(|event| event["from"] == "running" && event["to"] == "pending");
    assert!(lost, "the history contains the lost attempt");
}

on_both_stores!(another_worker_takes_over);
