//! The same events through all engines, and through the core alone, give the same answers and the same final state.

use qo_sim::script::{through, through_the_core};
use qo_sim::subject::all;

const SCRIPTS: u64 = 25;

#[test]
fn the_same_events_give_the_same_state_on_every_engine() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..SCRIPTS {
        let expected = through_the_core(seed);
        assert!(expected.len() > 90, "script {seed}: {}", expected.len());
        kinds.extend(expected.iter().filter_map(|line| {
            let word = line.split_whitespace().next()?;
            (!line.contains("cannot")).then(|| word.to_owned())
        }));
        for subject in all() {
            let engine = subject.name();
            let found = through(&subject, seed);
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{engine}, script {seed}, step {step}");
            }
            assert_eq!(found.len(), expected.len(), "{engine}, script {seed}");
        }
    }
    println!("{kinds:?}");
}
