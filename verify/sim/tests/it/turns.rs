//! Groups that take turns in direct mode, where no process counts turns.

use qo_sim::run::turns;
use qo_sim::subject::all;

/// The number of seeds, unless `QO_TURNS_SEEDS` says another one.
const SEEDS: u64 = 12;

#[test]
fn the_first_task_of_another_group_does_not_wait_for_a_backlog() {
    let seeds = std::env::var("QO_TURNS_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().unwrap());
    for subject in all().iter().filter(|subject| subject.turns_max().is_none()) {
        for seed in 0..seeds {
            let found = turns(subject, seed);
            assert!(
                found.0.is_empty(),
                "{}, seed {seed}:\n{found}",
                subject.name()
            );
        }
    }
}
