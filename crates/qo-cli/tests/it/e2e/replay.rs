//! A task that fails until it has no retries left, and is replayed once the cause is mended.

use super::cli::TestCli;

fn a_failing_task_ends_as_failed_and_can_be_replayed(cli: &TestCli) {
    let _worker = cli.worker(
        "w-1",
        &[
            "--exec",
            "mend=test -e mended || { echo 'still broken' >&2; exit 1; }",
        ],
    );
    let id = cli.submit(
        "mend",
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

    std::fs::write(cli.file("mended"), "").unwrap();
    cli.ok(["replay", &id]);
    let done = cli.wait_for(&id, "completed");
    assert_eq!(
        done["attempt"], 4,
        "attempts go on, so that each has a number of its own"
    );

    let again = cli.run(["cancel", &id]);
    assert_eq!(
        again.status.code(),
        Some(4),
        "what has ended cannot be cancelled"
    );
}

on_both_stores!(a_failing_task_ends_as_failed_and_can_be_replayed);
