//! Schedules that several processes fire under faults, on the engines that every process opens itself.

use qo_sim::run::schedules;
use qo_sim::subject::all;

const SEEDS: u64 = 12;

#[test]
fn each_tick_makes_exactly_one_task() {
    for subject in all().iter().filter(|subject| subject.brokers() == 0) {
        for seed in 0..SEEDS {
            let found = schedules(subject, seed);
            assert!(
                found.0.is_empty(),
                "{}, seed {seed}:\n{found}",
                subject.name()
            );
        }
    }
}
