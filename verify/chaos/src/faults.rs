//! What fails, and how often: a random subset with random rates, as a seed decides.

use std::fmt::Write as _;
use std::time::Duration;

use qo_sim::random::Random;

/// What can happen to a request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It waits before it is sent on.
    SlowRequest,
    /// Its answer waits.
    SlowAnswer,
    /// It is answered by 503 and not sent on.
    Refused,
    /// Its connection ends, and it is not sent on.
    Reset,
    /// It is answered by 409, although nobody else writes.
    Conflict,
    /// It is sent on, and its connection ends without an answer.
    LostAnswer,
    /// It is sent on, and answered by 500.
    ErrorAfter,
    /// It is sent on, and its answer breaks off in the middle.
    TornAnswer,
    /// It is sent on twice, and answered with the second answer.
    Twice,
    /// Its connection ends at once, and it is sent on seconds later.
    Late,
    /// Nothing is answered for a while.
    Outage,
}

impl Fault {
    /// All faults of single requests.
    pub const OF_REQUESTS: [Self; 10] = [
        Self::SlowRequest,
        Self::SlowAnswer,
        Self::Refused,
        Self::Reset,
        Self::Conflict,
        Self::LostAnswer,
        Self::ErrorAfter,
        Self::TornAnswer,
        Self::Twice,
        Self::Late,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SlowRequest => "slow request",
            Self::SlowAnswer => "slow answer",
            Self::Refused => "503",
            Self::Reset => "reset",
            Self::Conflict => "409",
            Self::LostAnswer => "lost answer",
            Self::ErrorAfter => "500 after applying",
            Self::TornAnswer => "torn answer",
            Self::Twice => "sent twice",
            Self::Late => "applied late",
            Self::Outage => "outage",
        }
    }
}

/// What can happen to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blow {
    /// SIGKILL, and a new one.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Stop,
    /// SIGTERM, and a new one.
    Terminate,
}

impl Blow {
    /// All blows.
    pub const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Terminate];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Stop => "SIGSTOP",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// What fails in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// How often each fault strikes a request.
    pub rates: Vec<(Fault, f64)>,
    /// How long there is between two outages, if there are any.
    pub outage_every: Option<Duration>,
    /// What happens to processes.
    pub blows: Vec<Blow>,
    /// How long there is between two blows.
    pub blow_every: Duration,
}

impl Faults {
    /// What a seed decides. One seed in six leaves the network alone, so that what happens in it is explained by the blows alone.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::of(&[seed, 1]);
        let network = random.below(6) > 0;
        let mut rates = Vec::new();
        for fault in Fault::OF_REQUESTS {
            let chosen = random.chance(0.65);
            let part = random.unit();
            if !network || !chosen {
                continue;
            }
            let rate = match fault {
                Fault::SlowRequest | Fault::SlowAnswer => 0.02 + 0.10 * part,
                Fault::Late | Fault::Twice => 0.002 + 0.01 * part,
                _ => 0.003 + 0.025 * part,
            };
            rates.push((fault, rate));
        }
        let outage_every = random.millis(8_000, 25_000);
        let outages = random.chance(0.6) && network;
        let mut blows: Vec<Blow> = Blow::ALL
            .into_iter()
            .filter(|_| random.chance(0.7))
            .collect();
        if blows.is_empty() {
            blows.push(Blow::Kill);
        }
        Self {
            rates,
            outage_every: outages.then_some(outage_every),
            blows,
            blow_every: random.millis(1_500, 5_000),
        }
    }

    /// Whether the network is disturbed at all.
    pub fn disturb_the_network(&self) -> bool {
        !self.rates.is_empty() || self.outage_every.is_some()
    }

    /// In a line.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (fault, rate) in &self.rates {
            // Writing into a string cannot fail, here and below.
            let _ = write!(text, "{} {:.1}%, ", fault.name(), rate * 100.0);
        }
        if let Some(every) = self.outage_every {
            let _ = write!(text, "an outage every {} s, ", every.as_secs());
        }
        let blows: Vec<_> = self.blows.iter().map(|blow| blow.name()).collect();
        let _ = write!(
            text,
            "{} every {:.1} s",
            blows.join(" or "),
            self.blow_every.as_secs_f64()
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
        for fault in Fault::OF_REQUESTS {
            let strikes = |faults: &&Faults| faults.rates.iter().any(|(kind, _)| *kind == fault);
            let seeds = all.iter().filter(strikes).count();
            assert!((10..60).contains(&seeds), "{}: {seeds}", fault.name());
        }
        assert!(all.iter().all(|faults| !faults.blows.is_empty()));
    }
}
