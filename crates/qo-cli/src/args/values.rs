//! Parsers of argument values. Their errors say what to write instead.

use std::time::Duration;

use qo::{Status, Timestamp};

/// Maximum duration: a year.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 365);

/// Parses a duration: `30s`, `5m`, `1h30m`, `250ms`, or plain seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    const ADVICE: &str = "use a form such as 30s, 5m, 1h30m or 250ms, or a number of seconds";
    let text = text.trim();
    let parsed = if text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        text.parse()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or("not a number")
    } else {
        humantime::parse_duration(text).map_err(|_| "not a duration")
    };
    match parsed {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        Ok(_) => Err("longer than a year".to_owned()),
        Err(problem) => Err(format!("{problem}: {ADVICE}")),
    }
}

/// Parses a duration greater than zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be greater than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses the interval of `--watch`: from a tenth of a second to an hour.
pub fn watch_interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text).map_err(|_| {
        "expected a number of seconds; put other arguments before --watch, or write --watch=5"
            .to_owned()
    })?;
    if (Duration::from_millis(100)..=Duration::from_hours(1)).contains(&interval) {
        Ok(interval)
    } else {
        Err("must be between 100ms and 1h".to_owned())
    }
}

/// A point in time, absolute or relative to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// A timestamp.
    At(Timestamp),
    /// This long before now.
    Ago(Duration),
}

impl Since {
    /// The timestamp, given the current time.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.minus_millis(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// Parses `2026-01-31T12:00:00Z`, `2026-01-31`, or an age such as `2h`.
pub fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = timestamp(text) {
        return Ok(Since::At(at));
    }
    duration(text).map(Since::Ago).map_err(|_| {
        "expected a time such as 2026-01-31T12:00:00Z, a date such as 2026-01-31, or an age such as 2h"
            .to_owned()
    })
}

/// Parses `2026-01-31T12:00:00Z`, or `2026-01-31` for midnight UTC.
pub fn timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .or_else(|error: qo_core::time::InvalidTimestamp| {
            format!("{text}T00:00:00Z").parse().map_err(|_| error)
        })
        .map_err(|error| error.to_string())
}

/// Parses a status, in any case.
pub fn status(text: &str) -> Result<Status, String> {
    text.to_ascii_lowercase()
        .parse()
        .map_err(|error: qo_core::task::UnknownStatus| error.to_string())
}

/// Parses a number of bytes, with or without a unit: `4096`, `64KiB`, `1MiB`, `2GiB`.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (digits, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))
        .unwrap_or((text, 0));
    digits
        .trim_end()
        .parse::<u64>()
        .ok()?
        .checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("90", 90_000),
            ("1.5", 1_500),
            ("0", 0),
            ("2 days", 172_800_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "soon",
            "-5",
            "5x",
            "1.2.3",
            "400d",
            "99999999999999999999",
            ".",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(positive_duration("0s").is_err());
        assert!(
            watch_interval("550e8400")
                .unwrap_err()
                .contains("--watch=5")
        );
    }

    #[test]
    fn points_in_time_are_absolute_or_relative() {
        let day: Timestamp = "2026-01-31T00:00:00Z".parse().unwrap();
        assert_eq!(since("2026-01-31"), Ok(Since::At(day)));
        assert_eq!(since("2h"), Ok(Since::Ago(Duration::from_hours(2))));
        assert!(since("yesterday").unwrap_err().contains("2026-01-31"));
        assert_eq!(
            Since::Ago(Duration::from_secs(1)).resolve(day),
            day.minus_millis(1_000)
        );
    }

    #[test]
    fn statuses_are_parsed_in_any_case() {
        assert_eq!(status("Failed"), Ok(Status::Failed));
        assert!(status("done").unwrap_err().contains("completed"));
    }
}
