//! A task runs out of retries and is replayed after the cause is fixed.

use super::cli::TestCli;

fn a_failing_task_ends_as_failed_and_can_be_replayed(cli: &TestCli) {
    let _worker = cli.worker(
        "w-1",
        &[
            "--exec",
            "fix=test -e fixed || { echo 'still broken' >&2; exit 1; }",
        ],
    );
    let id = cli.submit(
        "fix",
        "null",
        &["--retries", "2", "--retry-initial", "50ms"],
    );
    let failed = cli.wait_for(&id, "failed");
    assert_eq!(failed["attempt"], 3);
    assert!(
        failed["last_error"]
            .as_str()
            .unwrap()
            .contains("still broken")
    );

    std::fs::write(cli.file("fixed"), "").unwrap();
    cli.ok(["replay", &id]);
    let done = cli.wait_for(&id, "completed");
    assert_eq!(
        done["attempt"], 4,
        "attempt numbers continue, so that each is unique"
    );

    let again = cli.run(["cancel", &id]);
    assert_eq!(
        again.status.code(),
        Some(4),
        "a finished task cannot be cancelled"
    );
}

on_both_stores!(a_failing_task_ends_as_failed_and_can_be_replayed);
