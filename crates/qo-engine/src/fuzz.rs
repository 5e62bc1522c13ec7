//! Helpers for the fuzz targets of every crate.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Parses a record and asserts that it survives a round trip: writing and reading it yields an equal value, and writing that value
/// again yields the same bytes. Otherwise a record could change without a write by a caller.
pub fn round_trip<T>(bytes: &[u8]) -> Option<T>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let value: T = serde_json::from_slice(bytes).ok()?;
    let (reread, written) = rewrite(&value);
    assert_eq!(
        reread.as_ref(),
        Some(&value),
        "{}",
        String::from_utf8_lossy(&written)
    );
    let (_, rewritten) = rewrite(&reread);
    assert_eq!(written, rewritten);
    Some(value)
}

/// Serializes a value and parses it again. Also returns the bytes.
pub fn rewrite<T: Serialize + DeserializeOwned>(value: &T) -> (Option<T>, Vec<u8>) {
    let written = serde_json::to_vec(value).unwrap_or_default();
    (serde_json::from_slice(&written).ok(), written)
}
