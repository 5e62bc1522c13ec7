//! A worker is suspended past its lease, and its result is rejected when it resumes.

use std::time::Duration;

use qo_testkit::wait_until;
use rustix::process::Signal;

use super::cli::TestCli;
use super::processes::WorkerProcess;

/// Time limit for a write of another process while no lock is held.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

fn the_result_of_a_zombie_is_rejected(cli: &TestCli) {
    // The first attempt ends after the second one. Its worker notices when it resumes.
    let handler = r#"work=if [ "$QO_ATTEMPT" = 1 ]; then touch started; while ! test -e finish; do sleep 0.05; done; fi; echo "$QO_WORKER_ID""#;
    let zombie = cli.worker("zombie", &["--exec", handler]);
    let id = cli.submit("work", "null", &["--retry-initial", "50ms"]);
    cli.wait_for_file("started");
    suspend(cli, &zombie);

    let _second = cli.worker("second", &["--exec", handler]);
    let done = cli.wait_for(&id, "completed");
    assert_eq!(done["output"], "second");
    std::fs::write(cli.file("finish"), "").unwrap();
    zombie.signal(Signal::CONT);
    zombie.wait_for_log("its lease was lost");

    // The worker then runs tasks as usual.
    let next = cli.submit("work", "null", &[]);
    std::fs::write(cli.file("finish"), "").unwrap();
    cli.wait_for(&next, "completed");
    assert_eq!(cli.task(&id), done, "the first task is unchanged");
}

/// Suspends a worker while it holds no SQLite lock. A lock held by a suspended process would block all other writers.
fn suspend(cli: &TestCli, worker: &WorkerProcess) {
    for _ in 0..10 {
        worker.signal(Signal::STOP);
        let mut write = cli.command(["pause", "elsewhere"]).spawn().unwrap();
        if wait_until(WRITE_LIMIT, || write.try_wait().unwrap().is_some()) {
            return;
        }
        worker.signal(Signal::CONT);
        write.wait().unwrap();
    }
    panic!("the worker held a lock each time");
}

on_both_stores!(the_result_of_a_zombie_is_rejected);
