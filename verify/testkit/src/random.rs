//! Random names, so that servers, buckets and tests in several processes never meet.

use std::fmt::Write as _;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::KitError;

/// `bytes` random bytes in lower-case hexadecimal digits.
pub(crate) fn hex(bytes: usize) -> Result<String, KitError> {
    let mut raw = vec![0; bytes];
    fill(&mut raw)?;
    Ok(encode(&raw))
}

/// Sixteen random bits.
pub(crate) fn bits16() -> Result<u16, KitError> {
    let mut raw = [0; 2];
    fill(&mut raw)?;
    Ok(u16::from_be_bytes(raw))
}

/// Bytes in lower-case hexadecimal digits.
pub(crate) fn encode(raw: &[u8]) -> String {
    raw.iter()
        .fold(String::with_capacity(raw.len() * 2), |mut text, byte| {
            // Writing into a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn fill(raw: &mut [u8]) -> Result<(), KitError> {
    SystemRandom::new()
        .fill(raw)
        .map_err(|_| KitError::NoRandomness)
}
