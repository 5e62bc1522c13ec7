//! Times and durations for display.

use std::time::Duration;

use qo::Timestamp;

/// A duration in one or two units: `850 ms`, `12 s`, `3 min`, `2 h 5 min`, `4 d`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 => format!("{} ms", duration.as_millis().max(1)),
        1..60 => format!("{seconds} s"),
        60..600 => two(seconds / 60, "min", seconds % 60, "s"),
        600..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        86_400..864_000 => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large} {large_unit}")
    } else {
        format!("{large} {large_unit} {small} {small_unit}")
    }
}

/// A duration in one unit, for tables.
pub fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A time relative to now: `3 min ago`, `in 12 s`, `now`.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    if at.as_millis().abs_diff(now.as_millis()) < 1_000 {
        "now".to_owned()
    } else if at > now {
        format!("in {}", short(at.since(now)))
    } else {
        format!("{} ago", short(now.since(at)))
    }
}

/// A time relative to now, followed by the absolute time.
pub fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", relative(at, now), absolute(at))
}

/// A time to the second.
pub fn absolute(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{}Z", seconds.replace('T', " ")),
        None => text,
    }
}

/// The time of day to the millisecond.
pub fn time_of_day(at: Timestamp) -> String {
    let text = at.to_string();
    let time = text.split_once('T').map_or("", |(_, time)| time);
    time.trim_end_matches('Z').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_or_two_units() {
        for (millis, text) in [
            (0, "0 s"),
            (1, "1 ms"),
            (850, "850 ms"),
            (12_400, "12 s"),
            (60_000, "1 min"),
            (61_000, "1 min 1 s"),
            (659_000, "10 min"),
            (3_600_000, "1 h"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
            (86_400_000 * 40, "40 d"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = Timestamp::from_millis(1_763_238_840_123);
        for (at, text) in [
            (now, "now"),
            (now.minus_millis(999), "now"),
            (now.minus_millis(3_000), "3 s ago"),
            (now.minus_millis(200_000), "3 min ago"),
            (now.plus_millis(12_500), "in 12 s"),
            (now.plus_millis(86_400_000 * 3), "in 3 d"),
        ] {
            assert_eq!(relative(at, now), text);
        }
        assert_eq!(both(now, now), "now (2025-11-15 20:34:00Z)");
        assert_eq!(time_of_day(now), "20:34:00.123");
    }
}
