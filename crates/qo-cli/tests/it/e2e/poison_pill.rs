//! A task that kills every worker that claims it.

use super::cli::TestCli;

fn a_task_that_kills_its_workers_fails_after_its_attempts(cli: &TestCli) {
    let poison = cli.submit(
        "poison",
        "null",
        &["--retries", "2", "--retry-initial", "50ms"],
    );
    let handlers = [
        "--exec",
        "poison=kill -KILL $PPID; sleep 120",
        "--exec",
        "plain=true",
    ];
    for victim in 1..=3 {
        let mut worker = cli.worker(&format!("victim-{victim}"), &handlers);
        assert!(
            !worker.wait().success(),
            "the task should have killed the worker:\n{}",
            worker.log()
        );
    }
    let mut survivor = cli.worker("survivor", &handlers);
    let failed = cli.wait_for(&poison, "failed");
    assert_eq!(failed["attempt"], 3);

    let plain = cli.submit("plain", "null", &[]);
    cli.wait_for(&plain, "completed");
    survivor.signal(rustix::process::Signal::TERM);
    assert!(survivor.wait().success(), "{}", survivor.log());
}

on_both_stores!(a_task_that_kills_its_workers_fails_after_its_attempts);
