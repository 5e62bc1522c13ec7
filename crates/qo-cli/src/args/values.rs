//! From a word to a value, or to a sentence that says what to write instead.

use std::time::Duration;

use qo::{Status, Timestamp};

/// The longest duration that can be typed: a year.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 365);

/// A duration: `30s`, `5m`, `1h30m`, `250ms`, or plain seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    const ADVICE: &str = "write it like 30s, 5m, 1h30m, 250ms, or as a number of seconds";
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

/// A duration that is not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// The pause of `--watch`: from a tenth of a second to an hour.
pub fn watch_interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text).map_err(|_| {
        "the seconds between two looks are expected here; other words go before --watch, or write --watch=5"
            .to_owned()
    })?;
    if (Duration::from_millis(100)..=Duration::from_hours(1)).contains(&interval) {
        Ok(interval)
    } else {
        Err("must be from 100ms to 1h".to_owned())
    }
}

/// A point in time, or how long ago it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// At this time.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl Since {
    /// The point in time, as seen at `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.minus_millis(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// `2026-01-31T12:00:00Z`, `2026-01-31`, or a duration before now.
pub fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = timestamp(text) {
        return Ok(Since::At(at));
    }
    duration(text).map(Since::Ago).map_err(|_| {
        "write a time such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, or how long ago, such as 2h"
            .to_owned()
    })
}

/// `2026-01-31T12:00:00Z`, or `2026-01-31` for its beginning in UTC.
pub fn timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .or_else(|error: qo_core::time::InvalidTimestamp| {
            format!("{text}T00:00:00Z").parse().map_err(|_| error)
        })
        .map_err(|error| error.to_string())
}

/// A status.
pub fn status(text: &str) -> Result<Status, String> {
    text.to_ascii_lowercase()
        .parse()
        .map_err(|error: qo_core::task::UnknownStatus| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_every_usual_form() {
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
    fn points_in_time() {
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
    fn statuses_in_any_case() {
        assert_eq!(status("Failed"), Ok(Status::Failed));
        assert!(status("done").unwrap_err().contains("completed"));
    }
}
