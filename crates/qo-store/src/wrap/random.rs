//! A small seeded random number generator, for runs that can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

/// `SplitMix64`: small, seedable, and good enough to spread pauses and faults and to name things.
#[derive(Debug)]
pub struct SplitMix64(AtomicU64);

/// Odd, so that the state visits every number once.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        let state = self.0.fetch_add(STEP, Ordering::Relaxed);
        Self::mix(state.wrapping_add(STEP))
    }

    /// Derives a seed from another and a number.
    pub fn derive(seed: u64, number: u64) -> u64 {
        Self::mix(seed ^ number.wrapping_mul(STEP)).wrapping_add(1)
    }

    /// The finaliser: every bit of the input changes about half of the bits of the result.
    fn mix(mut bits: u64) -> u64 {
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
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
