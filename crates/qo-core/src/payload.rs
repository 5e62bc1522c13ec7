//! A task's input or output, inside the record or in a separate object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::extra::Extra;
use crate::json::Json;

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Inside the task's record.
    Inline(Json),
    /// In a separate object, whose key contains the task's id.
    Stored(PayloadRef),
}

impl Payload {
    /// The payload's size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Inline(json) => json.size() as u64,
            Self::Stored(reference) => reference.size,
        }
    }
}

/// Size and digest of a payload in a separate object, so that a reader can verify it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadRef {
    /// The size in bytes.
    pub size: u64,
    /// The digest of the bytes.
    pub sha256: Sha256,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl PayloadRef {
    /// A reference to bytes of this size and digest.
    pub fn new(size: u64, sha256: Sha256) -> Self {
        Self {
            size,
            sha256,
            extra: Extra::default(),
        }
    }
}

/// A SHA-256 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a SHA-256 digest: expected 64 hexadecimal digits")]
pub struct InvalidSha256;

impl Sha256 {
    /// Creates a digest from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

impl FromStr for Sha256 {
    type Err = InvalidSha256;

    fn from_str(text: &str) -> Result<Self, InvalidSha256> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(InvalidSha256),
        };
        let mut bytes = [0; 32];
        let text = text.as_bytes();
        if text.len() != 2 * bytes.len() {
            return Err(InvalidSha256);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_round_trip() {
        let digest =
            Sha256::from_bytes(std::array::from_fn(|i| u8::try_from(i * 7).unwrap_or(255)));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in ["", "00", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<Sha256>(), Err(InvalidSha256), "{bad}");
        }
    }

    #[test]
    fn fields_of_later_versions_survive() {
        let text = format!(
            r#"{{"size":3,"sha256":"{}","codec":"zstd"}}"#,
            "0".repeat(64)
        );
        let reference: PayloadRef = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&reference).unwrap(), text);
    }
}
