//! A broker that gets more submits than it commits, on the engines with brokers.

use qo_sim::overload::overload;
use qo_sim::subject::all;

const SEEDS: u64 = 10;

#[test]
fn no_live_worker_loses_its_lease_in_an_overload() {
    for subject in all().iter().filter(|subject| subject.admits_submits()) {
        for seed in 0..SEEDS {
            let outcome = overload(subject, seed);
            let name = subject.name();
            assert!(
                outcome.found.0.is_empty(),
                "{name}, seed {seed}:\n{}",
                outcome.found
            );
            // Otherwise it was no overload.
            let (accepted, refused) = (outcome.accepted, outcome.refused);
            assert!(accepted > 0 && refused > 0, "{name}: {accepted}, {refused}");
        }
    }
}
