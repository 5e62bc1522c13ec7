//! A worker that sleeps past its lease and wakes up again: its result is refused.

use rustix::process::Signal;

use super::place::Place;

fn the_result_of_a_zombie_is_refused(place: Place) {
    // The first attempt ends once it is told to, which is after the second one has: its worker hears of it when it wakes up.
    let handler = r#"work=if [ "$QO_ATTEMPT" = 1 ]; then touch started; while ! test -e finish; do sleep 0.05; done; fi; echo "$QO_WORKER_ID""#;
    let zombie = place.worker("zombie", &["--exec", handler]);
    let id = place.submit("work", "null", &["--retry-initial", "50ms"]);
    place.wait_for_file("started");
    zombie.signal(Signal::STOP);

    let _second = place.worker("second", &["--exec", handler]);
    let done = place.wait_for(&id, "completed");
    assert_eq!(done["output"], "second");
    std::fs::write(place.file("finish"), "").unwrap();
    zombie.signal(Signal::CONT);
    zombie.wait_for_log("its lease is lost");

    // It is a worker like any other again.
    let next = place.submit("work", "null", &[]);
    std::fs::write(place.file("finish"), "").unwrap();
    place.wait_for(&next, "completed");
    assert_eq!(place.task(&id), done, "the first task is as it was");
}

on_both_stores!(the_result_of_a_zombie_is_refused);
