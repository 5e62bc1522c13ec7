//! JSON text that is passed through without interpretation.
//!
//! qo moves payloads without reading them. Keeping the original text avoids parsing, preserves all digits of large
//! numbers, and lets clones share one allocation.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::limits::{JSON_MAX_DEPTH, JSON_NUMBER_MAX_BYTES};

/// A well-formed JSON text. Clones share it.
#[derive(Clone)]
pub struct Json(Arc<Text>);

/// Keeps the text in its own allocation: storing it next to the reference count would copy it.
struct Text(Box<RawValue>);

/// Why a text is not a valid payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidJson {
    /// It is not JSON.
    #[error("invalid JSON: {0}")]
    Syntax(String),
    /// It is nested too deeply.
    #[error("the JSON is nested more than {JSON_MAX_DEPTH} levels deep")]
    TooDeep,
    /// It has a number that other programs cannot read.
    #[error(
        "the JSON contains a number with more than {JSON_NUMBER_MAX_BYTES} characters, which other programs cannot read: send it as a string"
    )]
    NumberTooLong,
    /// It has a string that is not Unicode text.
    #[error(
        "the JSON contains half of a surrogate pair, such as \\ud800, which other programs cannot read: send the whole character"
    )]
    LoneSurrogate,
    /// It has an object with two members of the same name.
    #[error(
        "the JSON contains an object with two members named {name:?}, of which other programs may read either: remove one"
    )]
    DuplicateName {
        /// The beginning of the name.
        name: String,
    },
}

impl Json {
    /// The value `null`.
    pub fn null() -> Self {
        Self::of(RawValue::NULL.to_owned())
    }

    /// Validates the text and keeps it unchanged.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidJson> {
        let text = text.into();
        // Spare capacity would stay allocated as long as the task. Allocators shrink in place.
        let text = if text.capacity() > text.len() {
            text.as_str().to_owned()
        } else {
            text
        };
        let raw =
            RawValue::from_string(text).map_err(|error| InvalidJson::Syntax(error.to_string()))?;
        if depth(raw.get().as_bytes()) > JSON_MAX_DEPTH {
            return Err(InvalidJson::TooDeep);
        }
        Ok(Self::of(raw))
    }

    fn of(raw: Box<RawValue>) -> Self {
        Self(Arc::new(Text(raw)))
    }

    /// Checks that it does not nest too deeply. Text that was read as part of a larger text has not been checked.
    pub fn check_depth(&self) -> Result<(), InvalidJson> {
        if depth(self.as_str().as_bytes()) > JSON_MAX_DEPTH {
            return Err(InvalidJson::TooDeep);
        }
        Ok(())
    }

    /// Checks that other programs can read it: I-JSON (RFC 7493) forbids strings with half of a surrogate pair and objects with two
    /// members of one name, and some parsers refuse numbers with thousands of digits. Digits beyond the precision of a double are allowed,
    /// because qo keeps them, and so are noncharacters such as U+FFFE, which I-JSON forbids, but Unicode allows and parsers read.
    pub fn check_interoperable(&self) -> Result<(), InvalidJson> {
        let mut rest = self.as_str().as_bytes();
        let mut names = OpenNames::default();
        while let Some((first, after)) = rest.split_first() {
            rest = match first {
                b'"' => {
                    let next = end_of_string(after)?;
                    let is_name = next.trim_ascii_start().first() == Some(&b':');
                    if is_name {
                        names.add(rest.get(..rest.len() - next.len()).unwrap_or_default());
                    }
                    next
                }
                b'{' => {
                    names.open();
                    after
                }
                b'}' => {
                    names.close()?;
                    after
                }
                b'-' | b'0'..=b'9' => {
                    let is_part =
                        |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                    let length = rest.iter().take_while(|byte| is_part(byte)).count();
                    if length > JSON_NUMBER_MAX_BYTES {
                        return Err(InvalidJson::NumberTooLong);
                    }
                    rest.get(length..).unwrap_or_default()
                }
                _ => after,
            };
        }
        Ok(())
    }

    /// Serializes a value as JSON.
    pub fn from_value(value: &impl Serialize) -> Result<Self, InvalidJson> {
        let text =
            serde_json::to_string(value).map_err(|error| InvalidJson::Syntax(error.to_string()))?;
        Self::parse(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.0.get()
    }

    /// The length of the text in bytes.
    pub fn size(&self) -> usize {
        self.as_str().len()
    }

    /// Deserializes the text.
    pub fn to_value<T: DeserializeOwned>(&self) -> Result<T, InvalidJson> {
        serde_json::from_str(self.as_str()).map_err(|error| InvalidJson::Syntax(error.to_string()))
    }
}

/// The most names that are remembered at once, so that a huge payload takes little memory. Members beyond them are not compared.
const OPEN_NAMES_MAX: usize = 100_000;

/// The names of the members of the objects that are open.
#[derive(Default)]
struct OpenNames<'a> {
    /// Without quotation marks and escapes.
    names: Vec<Cow<'a, [u8]>>,
    /// Where the names of each open object begin.
    begins: Vec<usize>,
}

impl<'a> OpenNames<'a> {
    fn open(&mut self) {
        self.begins.push(self.names.len());
    }

    /// Adds a name with its quotation marks to the innermost object.
    fn add(&mut self, quoted: &'a [u8]) {
        if self.names.len() >= OPEN_NAMES_MAX {
            return;
        }
        let plain = quoted.strip_prefix(b"\"").unwrap_or(quoted);
        let plain = plain.strip_suffix(b"\"").unwrap_or(plain);
        self.names.push(if plain.contains(&b'\\') {
            // It was parsed before, so its escapes are valid.
            let text = serde_json::from_slice::<String>(quoted).unwrap_or_default();
            Cow::Owned(text.into_bytes())
        } else {
            Cow::Borrowed(plain)
        });
    }

    /// Compares the names of the innermost object, and forgets them.
    fn close(&mut self) -> Result<(), InvalidJson> {
        let begin = self.begins.pop().unwrap_or_default();
        let names = self.names.get_mut(begin..).unwrap_or_default();
        names.sort_unstable();
        let mut pairs = names.iter().zip(names.iter().skip(1));
        if let Some((name, _)) = pairs.find(|(one, next)| one == next) {
            let name = String::from_utf8_lossy(name);
            return Err(InvalidJson::DuplicateName {
                name: name.chars().take(64).collect(),
            });
        }
        self.names.truncate(begin);
        Ok(())
    }
}

/// What follows a string, whose quotation mark was read. Its escapes of surrogates must be pairs.
fn end_of_string(mut rest: &[u8]) -> Result<&[u8], InvalidJson> {
    let mut has_high = false;
    loop {
        let Some((byte, after)) = rest.split_first() else {
            return Ok(rest);
        };
        let unit = match (byte, after.first()) {
            (b'\\', Some(b'u')) => after.get(1..5).and_then(|digits| {
                let digits = std::str::from_utf8(digits).ok()?;
                u16::from_str_radix(digits, 16).ok()
            }),
            _ => None,
        };
        let is_low = unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        if has_high != is_low {
            return Err(InvalidJson::LoneSurrogate);
        }
        has_high = unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
        let length = match (byte, unit) {
            (b'"', _) => return Ok(after),
            (b'\\', Some(_)) => 6,
            (b'\\', None) => 2,
            _ => 1,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// The nesting depth of a well-formed JSON text.
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
        self.0.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_programs_cannot_read_is_found() {
        let check = |text: &str| Json::parse(text).unwrap().check_interoperable();
        for good in [
            "null",
            "[1.5e300,-2,123456789012345678901234567890.10]",
            r#"{"a":"\ud83d\ude00","b":"\\ud800","c":"é\n\u00e9"}"#,
            r#""\"\ud83d\ude00\"""#,
            "\"😀\"",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#"["\ud83dx"]"#,
            r#""\ud83d\ud83d""#,
            r#"{"\ude00\ud83d":1}"#,
            r#""\ud83d\n""#,
        ] {
            assert_eq!(check(bad), Err(InvalidJson::LoneSurrogate), "{bad}");
        }
        let long = "7".repeat(JSON_NUMBER_MAX_BYTES);
        assert_eq!(check(&long), Ok(()));
        assert_eq!(
            check(&format!("[{long}7]")),
            Err(InvalidJson::NumberTooLong)
        );
        // Digits in a string are no number.
        assert_eq!(check(&format!("\"{long}7\"")), Ok(()));
    }

    #[test]
    fn two_members_of_one_name_are_found() {
        let check = |text: &str| Json::parse(text).unwrap().check_interoperable();
        for good in [
            r#"{"a":1,"b":{"a":{"a":2}},"c":[{"a":3},{"a":4}],"":5,"A":6}"#,
            r#"{"a":"a","b":"a","c":["a","a","}{\":"]}"#,
            r#"{"a:":1,"a":"{"}"#,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, name) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"[{"x":[{"b" :1,"c":{"a":1} , "b"\t:2}]}]"#, "b"),
            (r#"{"a":1,"\u0061":2}"#, "a"),
            (r#"{"":1,"":2}"#, ""),
            (r#"{"\ud83d\ude00":1,"😀":2}"#, "😀"),
            (r#"{"a":{"b":1},"c":2,"a":3}"#, "a"),
        ] {
            let bad = bad.replace("\\t", "\t");
            let expected = InvalidJson::DuplicateName {
                name: name.to_owned(),
            };
            assert_eq!(check(&bad), Err(expected), "{bad}");
        }
        // Noncharacters are read by every parser.
        assert_eq!(check("[\"\u{fffe}\", \"\\ufdd0\"]"), Ok(()));
    }

    /// A huge object takes a bounded amount of memory, so its last members are not compared.
    #[test]
    fn so_many_names_are_compared_and_no_more() {
        use std::fmt::Write as _;
        let with_double_at = |count: usize| {
            let mut text = "{".to_owned();
            for number in 0..count {
                write!(text, "\"{number}\":0,").unwrap();
            }
            let text = text + "\"0\":0}";
            Json::parse(text).unwrap().check_interoperable()
        };
        assert!(with_double_at(OPEN_NAMES_MAX - 1).is_err());
        assert_eq!(with_double_at(OPEN_NAMES_MAX), Ok(()));
    }

    #[test]
    fn the_text_is_kept_verbatim() {
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
    fn invalid_json_is_rejected() {
        for bad in ["", "{", "nul", "[1,]", "{\"a\" 1}", "1 2", "\"\u{1}\""] {
            assert!(
                matches!(Json::parse(bad), Err(InvalidJson::Syntax(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn nesting_is_bounded_and_brackets_in_strings_do_not_count() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Json::parse(nested(JSON_MAX_DEPTH)).is_ok());
        assert_eq!(
            Json::parse(nested(JSON_MAX_DEPTH + 1)),
            Err(InvalidJson::TooDeep)
        );
        assert!(Json::parse(format!("\"{}\\\"\"", "[".repeat(1_000))).is_ok());
    }
}
