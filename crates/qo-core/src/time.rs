//! Points in time, to the millisecond.
//!
//! Milliseconds are what the stored records, the browser's clock and the leases need; one unit everywhere means that a
//! record written by the dashboard equals one written here, byte for byte.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A point in time between the years 1970 and 9999, in milliseconds, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A text that is not a point in time that qo can keep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a time: expected RFC 3339 between 1970 and 9999, such as 2026-01-31T12:00:00Z"
)]
pub struct InvalidTimestamp {
    text: String,
}

impl Timestamp {
    /// 1970-01-01T00:00:00Z, the earliest time that qo keeps.
    pub const MIN: Self = Self(0);
    /// The last millisecond of the year 9999, the latest time that qo keeps.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// The time so many milliseconds after 1970; what lies outside the range becomes its nearest end.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Milliseconds since 1970.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole minutes since 1970: the bucket that this time falls into in a key.
    pub fn minute(self) -> u64 {
        // The range starts at 1970, so the value is never negative.
        self.0.unsigned_abs() / 60_000
    }

    /// This time plus `millis`, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        Self::from_millis(self.0.saturating_add_unsigned(millis))
    }

    /// This time minus `millis`, at least [`Timestamp::MIN`].
    #[must_use]
    pub fn minus_millis(self, millis: u64) -> Self {
        Self::from_millis(self.0.saturating_sub_unsigned(millis))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every value in the range has a date, so the fallback is never taken.
        let date = DateTime::<Utc>::from_timestamp_millis(self.0).unwrap_or_default();
        f.write_str(&date.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Accepts any RFC 3339 time; what is finer than a millisecond is cut off.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        DateTime::parse_from_rfc3339(text)
            .ok()
            .map(|date| date.timestamp_millis())
            .filter(|millis| (Self::MIN.0..=Self::MAX.0).contains(millis))
            .map(Self)
            .ok_or_else(|| InvalidTimestamp {
                text: text.chars().take(64).collect(),
            })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_at_millisecond_precision() {
        for millis in [0, 1, 999, 1_763_238_840_123, Timestamp::MAX.as_millis()] {
            let time = Timestamp::from_millis(millis);
            assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
        assert_eq!(
            Timestamp::from_millis(1_763_238_840_123).to_string(),
            "2025-11-15T20:34:00.123Z"
        );
    }

    #[test]
    fn other_offsets_and_finer_digits_are_understood() {
        let time: Timestamp = "2025-11-15T21:34:00.123999+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2025-11-15T20:34:00.123Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            "yesterday",
            "1969-12-31T23:59:59Z",
            "2025-13-01T00:00:00Z",
            "12345",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    #[test]
    fn arithmetic_stays_in_range() {
        assert_eq!(Timestamp::MAX.plus_millis(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.minus_millis(u64::MAX), Timestamp::MIN);
        assert_eq!(Timestamp::MIN.since(Timestamp::MAX), Duration::ZERO);
    }
}
