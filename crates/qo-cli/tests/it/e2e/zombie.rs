//! A worker that sleeps past its lease and wakes up again: its result is refused.

use std::time::Duration;

use qo_testkit::wait_until;
use rustix::process::Signal;

use super::cli::TestCli;
use super::processes::WorkerProcess;

/// How long a write of somebody else may take where nobody holds it up.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

fn the_result_of_a_zombie_is_refused(cli: &TestCli) {
    // The first attempt ends once it is told to, which is after the second one has: its worker hears of it when it wakes up.
    let handler = r#"work=if [ "$QO_ATTEMPT" = 1 ]; then touch started; while ! test -e finish; do sleep 0.05; done; fi; echo "$QO_WORKER_ID""#;
    let zombie = cli.worker("zombie", &["--exec", handler]);
    let id = cli.submit("work", "null", &["--retry-initial", "50ms"]);
    cli.wait_for_file("started");
    put_to_sleep(cli, &zombie);

    let _second = cli.worker("second", &["--exec", handler]);
    let done = cli.wait_for(&id, "completed");
    assert_eq!(done["output"], "second");
    std::fs::write(cli.file("finish"), "").unwrap();
    zombie.signal(Signal::CONT);
    zombie.wait_for_log("its lease is lost");

    // It is a worker like any other again.
    let next = cli.submit("work", "null", &[]);
    std::fs::write(cli.file("finish"), "").unwrap();
    cli.wait_for(&next, "completed");
    assert_eq!(cli.task(&id), done, "the first task is as it was");
}

/// Stops a worker in a moment in which it holds no lock of SQLite: one that it holds is held until it wakes up, and nobody else can write.
fn put_to_sleep(cli: &TestCli, worker: &WorkerProcess) {
    for _ in 0..10 {
        worker.signal(Signal::STOP);
        let mut write = cli.command(["pause", "elsewhere"]).spawn().unwrap();
        if wait_until(WRITE_LIMIT, || write.try_wait().unwrap().is_some()) {
            return;
        }
        worker.signal(Signal::CONT);
        write.wait().unwrap();
    }
    panic!("the worker was in the middle of a write each time");
}

on_both_stores!(the_result_of_a_zombie_is_refused);
