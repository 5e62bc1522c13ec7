//! The faults of a run: a random subset with random rates, decided by a seed.

use std::fmt::Write as _;
use std::time::Duration;

use qo_sim::random::Random;
pub use qo_store::wrap::FaultKind;

/// The faults of single requests. Their order decides what a seed draws.
pub const OF_REQUESTS: [FaultKind; 10] = [
    FaultKind::SlowRequest,
    FaultKind::SlowReply,
    FaultKind::Unavailable,
    FaultKind::LostRequest,
    FaultKind::Conflict,
    FaultKind::LostResponse,
    FaultKind::ErrorAfterApply,
    FaultKind::TornRead,
    FaultKind::DuplicateApply,
    FaultKind::LateApply,
];

/// The faults of processes: SIGKILL, SIGSTOP with SIGCONT later, and SIGTERM. Processes that end are replaced.
pub const OF_PROCESSES: [FaultKind; 3] = [FaultKind::Crash, FaultKind::Pause, FaultKind::Terminate];

/// The faults of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// The rate of each fault of requests.
    pub rates: Vec<(FaultKind, f64)>,
    /// The time between two outages, if there are any.
    pub outage_every: Option<Duration>,
    /// The faults of processes.
    pub process_faults: Vec<FaultKind>,
    /// The time between two faults of processes.
    pub process_fault_every: Duration,
}

impl Faults {
    /// The faults of a seed. One seed in six has no network faults, so that process faults alone have to explain everything.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::of(&[seed, 1]);
        let network = random.below(6) > 0;
        let mut rates = Vec::new();
        for fault in OF_REQUESTS {
            let chosen = random.chance(0.65);
            let part = random.unit();
            if !network || !chosen {
                continue;
            }
            let rate = match fault {
                FaultKind::SlowRequest | FaultKind::SlowReply => 0.02 + 0.10 * part,
                FaultKind::LateApply | FaultKind::DuplicateApply => 0.002 + 0.01 * part,
                _ => 0.003 + 0.025 * part,
            };
            rates.push((fault, rate));
        }
        let outage_every = random.millis(8_000, 25_000);
        let outages = random.chance(0.6) && network;
        let mut process_faults: Vec<FaultKind> = OF_PROCESSES
            .into_iter()
            .filter(|_| random.chance(0.7))
            .collect();
        if process_faults.is_empty() {
            process_faults.push(FaultKind::Crash);
        }
        Self {
            rates,
            outage_every: outages.then_some(outage_every),
            process_faults,
            process_fault_every: random.millis(1_500, 5_000),
        }
    }

    /// Whether there are network faults.
    pub fn disturb_the_network(&self) -> bool {
        !self.rates.is_empty() || self.outage_every.is_some()
    }

    /// Describes the faults in a line.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (fault, rate) in &self.rates {
            // Writing into a string cannot fail, here and below.
            let _ = write!(text, "{} {:.1}%, ", fault.name(), rate * 100.0);
        }
        if let Some(every) = self.outage_every {
            let _ = write!(text, "an outage every {} s, ", every.as_secs());
        }
        let names: Vec<_> = self.process_faults.iter().map(|kind| kind.name()).collect();
        let _ = write!(
            text,
            "{} every {:.1} s",
            names.join(" or "),
            self.process_fault_every.as_secs_f64()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_seeds_differ() {
        assert_eq!(Faults::of(7), Faults::of(7));
        let all: Vec<_> = (0..60).map(Faults::of).collect();
        assert!(all.iter().any(|faults| !faults.disturb_the_network()));
        for fault in OF_REQUESTS {
            let strikes = |faults: &&Faults| faults.rates.iter().any(|(kind, _)| *kind == fault);
            let seeds = all.iter().filter(strikes).count();
            assert!((10..60).contains(&seeds), "{}: {seeds}", fault.name());
        }
        assert!(all.iter().all(|faults| !faults.process_faults.is_empty()));
    }
}
