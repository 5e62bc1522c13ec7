//! A task that kills every worker that takes it.

use super::place::Place;

fn a_task_that_kills_its_workers_fails_after_its_attempts(place: Place) {
    let poison = place.submit(
        "poison",
        "null",
        &["--retries", "2", "--retry-initial", "50ms"],
    );
    let handlers = [
        "--exec",
        "poison=kill -KILL $PPID; sleep 600",
        "--exec",
        "plain=true",
    ];
    for victim in 1..=3 {
        let mut worker = place.worker(&format!("victim-{victim}"), &handlers);
        assert!(
            !worker.wait().success(),
            "the task was to kill it:\n{}",
            worker.log()
        );
    }
    let mut survivor = place.worker("survivor", &handlers);
    let failed = place.wait_for(&poison, "failed");
    assert_eq!(failed["attempt"], 3);

    let plain = place.submit("plain", "null", &[]);
    place.wait_for(&plain, "completed");
    survivor.signal(rustix::process::Signal::TERM);
    assert!(survivor.wait().success(), "{}", survivor.log());
}

on_both_stores!(a_task_that_kills_its_workers_fails_after_its_attempts);
