//! Timestamps with millisecond precision.
//!
//! Stored records, the browser's clock and leases all use milliseconds. With one unit everywhere, a record written by
//! the dashboard equals one written here, byte for byte.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use chrono::DateTime;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A time between the years 1970 and 9999, in milliseconds, in UTC.
///
/// It is stored as the number of milliseconds plus one, which is never zero. An optional time therefore takes no
/// extra memory, and a task has several of those.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(NonZeroU64);

/// Why a text is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a time: expected RFC 3339 between 1970 and 9999, such as 2026-01-31T12:00:00Z"
)]
pub struct InvalidTimestamp {
    text: String,
}

impl Timestamp {
    /// 1970-01-01T00:00:00Z, the earliest time.
    pub const MIN: Self = Self(NonZeroU64::MIN);
    /// The last millisecond of the year 9999, the latest time.
    pub const MAX: Self = Self(NonZeroU64::MIN.saturating_add(253_402_300_799_999));

    /// The time `millis` milliseconds after 1970, clamped to the range.
    pub fn from_millis(millis: i64) -> Self {
        let millis = u64::try_from(millis).unwrap_or(0);
        Self(NonZeroU64::MIN.saturating_add(millis).min(Self::MAX.0))
    }

    /// Milliseconds since 1970.
    pub fn as_millis(self) -> i64 {
        self.millis().cast_signed()
    }

    fn millis(self) -> u64 {
        self.0.get() - 1
    }

    /// Whole minutes since 1970, as used in keys.
    pub fn minute(self) -> u64 {
        self.millis() / 60_000
    }

    /// This time plus `millis`, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis).min(Self::MAX.0))
    }

    /// This time minus `millis`, at least [`Timestamp::MIN`].
    #[must_use]
    pub fn minus_millis(self, millis: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(self.millis().saturating_sub(millis)))
    }

    /// The time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis().saturating_sub(earlier.millis()))
    }
}

/// The format of a timestamp, with digits to fill in.
const FORM: [u8; 24] = *b"0000-00-00T00:00:00.000Z";
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl fmt::Display for Timestamp {
    /// Written by hand, because a record has several times and a general formatter would dominate its cost.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.millis();
        let (year, month, day) = date_of(millis / DAY_MS);
        let of_day = millis % DAY_MS;
        let mut text = FORM;
        put_digits(&mut text[0..4], year);
        put_digits(&mut text[5..7], month);
        put_digits(&mut text[8..10], day);
        put_digits(&mut text[11..13], of_day / 3_600_000);
        put_digits(&mut text[14..16], of_day / 60_000 % 60);
        put_digits(&mut text[17..19], of_day / 1_000 % 60);
        put_digits(&mut text[20..23], of_day % 1_000);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes a number, filling all of `room`.
fn put_digits(room: &mut [u8], mut number: u64) {
    for digit in room.iter_mut().rev() {
        // A remainder of ten fits in a byte.
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

/// The year, month and day `days_since_1970` days after 1970-01-01.
///
/// It counts in years that begin in March, so that a leap day is the last day of the year. The months then repeat the
/// pattern of 31, 30, 31, 30 and 31 days, and the days before a month are a linear function of its number.
fn date_of(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_PER_400_YEARS: u64 = 146_097;
    // The number of days from 0000-03-01 to 1970-01-01.
    let days = days_since_1970 + 719_468;
    let (cycle, of_cycle) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    // Subtract the leap days before this one: one every 4 years, except every 100, but again every 400.
    let leaps = of_cycle / 1_460 + of_cycle / 146_096;
    let year_of_cycle = (of_cycle + of_cycle / 36_524 - leaps) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12 + 1;
    let year = 400 * cycle + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Accepts any RFC 3339 time. Digits beyond milliseconds are truncated.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        DateTime::parse_from_rfc3339(text)
            .ok()
            .map(|date| date.timestamp_millis())
            .filter(|millis| (Self::MIN.as_millis()..=Self::MAX.as_millis()).contains(millis))
            .map(Self::from_millis)
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
    fn every_day_matches_the_calendar() {
        let days = Timestamp::MAX.as_millis() / 86_400_000;
        for day in 0..=days {
            let millis = day * 86_400_000 + (day * 7_919_333) % 86_400_000;
            let expected = DateTime::<chrono::Utc>::from_timestamp_millis(millis)
                .unwrap()
                .to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            assert_eq!(Timestamp::from_millis(millis).to_string(), expected);
        }
    }

    #[test]
    fn other_offsets_and_finer_digits_are_accepted() {
        let time: Timestamp = "2025-11-15T21:34:00.123999+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2025-11-15T20:34:00.123Z");
    }

    #[test]
    fn invalid_times_are_rejected() {
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
