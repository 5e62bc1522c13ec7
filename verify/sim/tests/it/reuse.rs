//! Ids and keys that are used again after the retention, on every engine.

use qo_sim::reuse::reuse;
use qo_sim::subject::all;

const SEEDS: u64 = 10;

#[test]
fn ids_and_keys_can_be_used_again() {
    for subject in &all() {
        for seed in 0..SEEDS {
            let found = reuse(subject, seed);
            assert!(
                found.0.is_empty(),
                "{}, seed {seed}:\n{found}",
                subject.name()
            );
        }
    }
}
