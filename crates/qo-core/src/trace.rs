//! The W3C trace context that a task carries from its submit to its handler.
//!
//! Only the header `traceparent` is kept, because it is what links two spans. It is validated on input, because it is
//! written into records and passed to other programs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The value of a `traceparent` header: `00-{trace id}-{span id}-{flags}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent(Box<str>);

/// Why a text is not a `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "not a traceparent: expected 00-TRACE-SPAN-FLAGS with 32, 16 and 2 hexadecimal digits, such as \
     00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct InvalidTraceParent;

impl TraceParent {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trace id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }
}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    /// Accepts version 00, the only version with a complete definition.
    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let parts: Vec<&str> = text.split('-').collect();
        let &[version, trace, span, flags] = parts.as_slice() else {
            return Err(InvalidTraceParent);
        };
        let hex = |part: &str, length: usize| {
            part.len() == length
                && part
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let named = |part: &str| part.bytes().any(|byte| byte != b'0');
        let holds = version == "00"
            && hex(trace, 32)
            && named(trace)
            && hex(span, 16)
            && named(span)
            && hex(flags, 2);
        if holds {
            Ok(Self(text.into()))
        } else {
            Err(InvalidTraceParent)
        }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for TraceParent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_round_trips() {
        let parent: TraceParent = GOOD.parse().unwrap();
        assert_eq!(parent.to_string(), GOOD);
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let json = serde_json::to_string(&parent).unwrap();
        assert_eq!(serde_json::from_str::<TraceParent>(&json).unwrap(), parent);
    }

    #[test]
    fn invalid_traceparents_are_rejected() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let upper = GOOD.to_uppercase();
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-011",
            "00-éééééééééééééééé-00f067aa0ba902b7-01",
            &zero_trace,
            &zero_span,
            &upper,
        ] {
            assert_eq!(bad.parse::<TraceParent>(), Err(InvalidTraceParent), "{bad}");
        }
    }
}
