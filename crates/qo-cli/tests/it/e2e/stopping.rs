//! SIGTERM while tasks run.

use std::collections::BTreeMap;

use qo_testkit::wait_until;
use rustix::process::Signal;

use super::LIMIT;
use super::cli::TestCli;

const TASKS: usize = 40;

/// Running tasks finish, pending ones stay, and the next worker runs the rest, each once.
fn a_stop_in_the_middle_loses_nothing(cli: &TestCli) {
    let handlers = [
        "--concurrency",
        "4",
        "--exec",
        r#"step=sleep 0.2; echo "$QO_TASK_ID" >> done"#,
    ];
    for number in 0..TASKS {
        cli.submit("step", &number.to_string(), &[]);
    }
    let mut first = cli.worker("w-1", &handlers);
    assert!(wait_until(LIMIT, || cli.lines_of("done").len() >= 4));
    first.signal(Signal::TERM);
    assert!(first.wait().success(), "{}", first.log());
    let after_first = cli.lines_of("done").len();
    assert!(after_first < TASKS, "the stop came too late for this test");
    let running = cli
        .tasks()
        .iter()
        .filter(|task| task["status"] == "running")
        .count();
    assert_eq!(running, 0, "a stopped worker leaves no running task");
    assert!(!cli.ok(["workers"]).contains("w-1"), "it has deregistered");

    let _second = cli.worker("w-2", &handlers);
    assert!(wait_until(LIMIT, || cli
        .tasks()
        .iter()
        .all(|task| task["status"] == "completed")));
    let mut runs = BTreeMap::new();
    for id in cli.lines_of("done") {
        *runs.entry(id).or_insert(0) += 1;
    }
    assert_eq!(runs.len(), TASKS);
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    // A task claimed during the stop is released without running. The claim has an attempt number, but does not count as a retry.
    assert!(cli.tasks().iter().all(|task| task["retry_count"] == 0));
}

/// A task that does not finish within the shutdown timeout is released without counting a retry, so another worker need not wait for
/// the lease to expire.
fn a_task_that_takes_too_long_is_released(cli: &TestCli) {
    let handler = r#"long=if [ "$QO_WORKER_ID" = w-1 ]; then touch started; exec sleep 120; fi; echo "$QO_WORKER_ID""#;
    let id = cli.submit("long", "null", &["--retries", "0"]);
    let mut first = cli.worker("w-1", &["--shutdown-timeout", "1s", "--exec", handler]);
    cli.wait_for_file("started");
    first.signal(Signal::TERM);
    assert!(first.wait().success(), "{}", first.log());
    let task = cli.task(&id);
    assert_eq!(task["status"], "pending");
    assert_eq!(task["retry_count"], 0);

    let _second = cli.worker("w-2", &["--exec", handler]);
    assert_eq!(cli.wait_for(&id, "completed")["output"], "w-2");
}

/// A second signal stops the worker at once. The task is recovered when its lease expires.
fn a_second_signal_stops_at_once(cli: &TestCli) {
    let handler =
        r#"long=if [ "$QO_ATTEMPT" = 1 ]; then touch started; exec sleep 120; fi; echo again"#;
    let id = cli.submit("long", "null", &["--retry-initial", "50ms"]);
    let mut first = cli.worker("w-1", &["--exec", handler]);
    cli.wait_for_file("started");
    first.signal(Signal::TERM);
    first.wait_for_log("waiting up to");
    // A signal that follows at once counts as the same one.
    std::thread::sleep(std::time::Duration::from_millis(400));
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(130), "{}", first.log());

    let _second = cli.worker("w-2", &["--exec", handler]);
    assert_eq!(cli.wait_for(&id, "completed")["output"], "again");
}

mod middle {
    use super::*;
    on_both_stores!(a_stop_in_the_middle_loses_nothing);
}

mod deadline {
    use super::*;
    on_both_stores!(a_task_that_takes_too_long_is_released);
}

mod twice {
    use super::*;
    on_both_stores!(a_second_signal_stops_at_once);
}
