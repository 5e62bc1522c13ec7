//! A handler that exceeds the timeout of its task.

use qo_testkit::wait_until;

use super::LIMIT;
use super::cli::TestCli;

fn a_handler_that_takes_too_long_is_killed_with_its_children(cli: &TestCli) {
    let _worker = cli.worker(
        "w-1",
        &["--exec", "slow=sleep 120 & echo $! > sleeper; wait"],
    );
    let id = cli.submit("slow", "null", &["--timeout", "1s", "--retries", "0"]);
    let failed = cli.wait_for(&id, "failed");
    let error = failed["last_error"].as_str().unwrap();
    assert!(
        error.contains("longer") || error.contains("timed out") || error.contains("timeout"),
        "{error}"
    );

    let sleeper = cli.lines_of("sleeper").concat();
    let process = std::path::PathBuf::from(format!("/proc/{sleeper}"));
    assert!(
        wait_until(LIMIT, || !process.exists()),
        "the handler's child process is still running"
    );
}

on_both_stores!(a_handler_that_takes_too_long_is_killed_with_its_children);
