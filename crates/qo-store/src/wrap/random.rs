//! A small seeded random number generator, for runs that can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use qo_core::mix::{STEP, finalize, mix};

/// `SplitMix64`: small, seedable, and good enough to spread pauses and faults and to name things.
#[derive(Debug)]
pub struct SplitMix64(AtomicU64);

impl SplitMix64 {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let state = self.0.fetch_add(STEP, Ordering::Relaxed);
        mix(state)
    }

    /// Derives a seed from another and a number.
    pub fn derive(seed: u64, number: u64) -> u64 {
        finalize(seed ^ number.wrapping_mul(STEP)).wrapping_add(1)
    }
}

impl Clone for SplitMix64 {
    fn clone(&self) -> Self {
        Self::new(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        // The published test vector of the generator.
        let random = SplitMix64::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        let clone = random.clone();
        assert_eq!(random.next_u64(), clone.next_u64());
    }
}
