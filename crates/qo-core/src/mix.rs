//! The finalizer of `SplitMix64`, for ids and pauses that follow from something, and for seeded random numbers.

/// Odd, so that a state that grows by it visits every number once.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of `SplitMix64`: every bit of the input changes about half of the bits of the result.
#[must_use]
pub const fn finalize(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The number of `SplitMix64` that follows a state. It is not 0 for the state 0, as the finalizer alone is.
#[must_use]
pub const fn mix(bits: u64) -> u64 {
    finalize(bits.wrapping_add(STEP))
}
