//! The address of a blob: the SHA-256 digest of its bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::payload::Sha256;

/// The length of an address as text.
pub const ADDRESS_CHARS: usize = 64;

/// The address of a blob: the SHA-256 digest of its bytes, written as 64 lower-case hexadecimal digits. Two blobs with the same bytes
/// are one blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobAddress(Sha256);

/// Why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a blob address: expected the SHA-256 digest of the blob as 64 lower-case hexadecimal digits"
)]
pub struct InvalidAddress {
    text: String,
}

impl BlobAddress {
    /// The address of a blob with this digest.
    pub fn new(digest: Sha256) -> Self {
        Self(digest)
    }

    /// The digest.
    pub fn digest(self) -> Sha256 {
        self.0
    }

    /// The first two digits. Keys are grouped by them.
    pub fn group(self) -> String {
        format!("{:02x}", self.0.as_bytes()[0])
    }
}

impl From<Sha256> for BlobAddress {
    fn from(digest: Sha256) -> Self {
        Self(digest)
    }
}

impl fmt::Display for BlobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BlobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobAddress({self})")
    }
}

impl FromStr for BlobAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        text.parse().map(Self).map_err(|_| InvalidAddress {
            text: text.chars().take(ADDRESS_CHARS + 8).collect(),
        })
    }
}

impl Serialize for BlobAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BlobAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_64_lower_case_digits() {
        let text = format!("0a{}", "f".repeat(62));
        let address: BlobAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), text);
        assert_eq!(address.group(), "0a");
        assert_eq!(
            serde_json::to_string(&address).unwrap(),
            format!("{text:?}")
        );
        for bad in [
            "",
            "0a",
            &text.to_uppercase(),
            &format!("{text}0"),
            &text[1..],
        ] {
            let error = bad.parse::<BlobAddress>().unwrap_err().to_string();
            assert!(error.contains("64 lower-case"), "{error}");
            assert!(serde_json::from_str::<BlobAddress>(&format!("{bad:?}")).is_err());
        }
    }
}
