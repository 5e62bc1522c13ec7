//! Helpers for the fuzz targets of every crate.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a record. What can be read is written so that it is read again as the same, and so that a second writing has the same bytes:
/// otherwise a record would change although nobody changed it.
pub fn round_trip<T>(bytes: &[u8]) -> Option<T>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let value: T = serde_json::from_slice(bytes).ok()?;
    let (again, written) = rewritten(&value);
    assert_eq!(
        again.as_ref(),
        Some(&value),
        "{}",
        String::from_utf8_lossy(&written)
    );
    let (_, twice) = rewritten(&again);
    assert_eq!(written, twice);
    Some(value)
}

/// Writes a value and reads it back; also returns the bytes.
pub fn rewritten<T: Serialize + DeserializeOwned>(value: &T) -> (Option<T>, Vec<u8>) {
    let written = serde_json::to_vec(value).unwrap_or_default();
    (serde_json::from_slice(&written).ok(), written)
}
