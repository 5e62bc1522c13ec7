//! A JSON text that is carried, not interpreted.
//!
//! qo moves payloads and never looks inside. Keeping the text as it came costs no parsing on the way, loses no digit of a
//! large number, and lets every clone share one allocation.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::limits::JSON_MAX_DEPTH;

/// A well-formed JSON text, shared by all of its clones.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// Why a text cannot be a payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidJson {
    /// It is not JSON.
    #[error("this is not JSON: {0}")]
    Syntax(String),
    /// It nests too deep for readers to be safe.
    #[error("this JSON nests deeper than {JSON_MAX_DEPTH} levels")]
    TooDeep,
}

impl Json {
    /// The value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// Checks the text and keeps it as it is.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJson> {
        let raw = RawValue::from_string(text.into())
            .map_err(|error| InvalidJson::Syntax(error.to_string()))?;
        if depth(raw.get().as_bytes()) > JSON_MAX_DEPTH {
            return Err(InvalidJson::TooDeep);
        }
        Ok(Self(raw.into()))
    }

    /// Makes sure that it nests no deeper than readers can bear. Whatever was read as a part of a larger text has not been looked at
    /// for that.
    pub fn check_depth(&self) -> Result<(), InvalidJson> {
        if depth(self.as_str().as_bytes()) > JSON_MAX_DEPTH {
            return Err(InvalidJson::TooDeep);
        }
        Ok(())
    }

    /// Writes a value as JSON.
    pub fn from_value(value: &impl Serialize) -> Result<Self, InvalidJson> {
        let text =
            serde_json::to_string(value).map_err(|error| InvalidJson::Syntax(error.to_string()))?;
        Self::parse(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The text's length in bytes.
    pub fn size(&self) -> usize {
        self.as_str().len()
    }

    /// Reads the text as a value.
    pub fn to_value<T: DeserializeOwned>(&self) -> Result<T, InvalidJson> {
        serde_json::from_str(self.as_str()).map_err(|error| InvalidJson::Syntax(error.to_string()))
    }
}

/// How deep a well-formed JSON text nests.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kept_to_the_byte() {
        let text = r#"{"n": 123456789012345678901234567890.10, "z":1 ,"a":2}"#;
        let json = Json::parse(text).unwrap();
        assert_eq!(json.as_str(), text);
        let copy: Json = serde_json::from_str(&serde_json::to_string(&json).unwrap()).unwrap();
        assert_eq!(copy, json);
    }

    #[test]
    fn clones_share_their_text() {
        let json = Json::parse("[1,2,3]").unwrap();
        assert!(std::ptr::eq(json.as_str(), json.clone().as_str()));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in ["", "{", "nul", "[1,]", "{\"a\" 1}", "1 2", "\"\u{1}\""] {
            assert!(
                matches!(Json::parse(bad), Err(InvalidJson::Syntax(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn nesting_is_bounded_and_brackets_in_texts_do_not_count() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Json::parse(nested(JSON_MAX_DEPTH)).is_ok());
        assert_eq!(
            Json::parse(nested(JSON_MAX_DEPTH + 1)),
            Err(InvalidJson::TooDeep)
        );
        assert!(Json::parse(format!("\"{}\\\"\"", "[".repeat(1_000))).is_ok());
    }
}
