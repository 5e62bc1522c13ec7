//! Seeded random numbers.
//!
//! Every decision has a stream of its own, derived from the seed and from the decision. Leaving one decision out does not change the others,
//! so a failing run can be shrunk.

use std::time::Duration;

use qo_store::wrap::SplitMix64;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// The stream that these numbers name together.
    pub fn of(parts: &[u64]) -> Self {
        let seed = parts.iter().fold(0x243f_6a88_85a3_08d3, |seed, part| {
            SplitMix64::derive(seed, *part)
        });
        Self(SplitMix64::new(seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, or 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A number from 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit into a double")]
        let numerator = (self.bits() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }

    /// True this often.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A time from `low_ms` to `high_ms`.
    pub fn millis(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        Duration::from_millis(self.between(low_ms, high_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut random = Random::of(&[1, 2]);
        assert_eq!(random.bits(), 0xe331_5b53_5702_5397);
    }

    #[test]
    fn streams_are_their_names_and_differ() {
        let draw = |parts: &[u64]| {
            let mut random = Random::of(parts);
            [random.bits(), random.bits()]
        };
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[2, 1]));
        assert_ne!(draw(&[0]), draw(&[0, 0]));
    }

    #[test]
    fn numbers_stay_in_their_bounds() {
        let mut random = Random::of(&[7]);
        for _ in 0..1_000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!((0.0..1.0).contains(&random.unit()));
            assert_eq!(random.below(0), 0);
        }
        let hits = (0..10_000).filter(|_| random.chance(0.1)).count();
        assert!((800..1_200).contains(&hits), "{hits}");
    }
}
