//! What an answer means for its task.
//!
//! | answer | the attempt |
//! | --- | --- |
//! | 2xx | succeeded; the body is the task's output |
//! | 429 or 503 with `Retry-After` | put off for that long (1 s to 1 h), not counted as a retry |
//! | 408, 425, 429, 5xx | failed, and is retried |
//! | any other 4xx, 3xx | failed for good; redirects are not followed |

use std::time::Duration;

use chrono::DateTime;
use qo::{TaskError, Timestamp};
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};

use crate::handlers::answer::printable;

/// How long a server can put a task off. It is asked again after that, and can put it off once more.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// What `Retry-After: 0` becomes, so that a task does not spin.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// The part of a redirect's target that an error shows.
const LOCATION_MAX_BYTES: usize = 256;

/// What an answer other than success means.
pub(super) fn refusal(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> TaskError {
    if matches!(status.as_u16(), 429 | 503)
        && let Some(delay) = retry_after(headers, now)
    {
        return TaskError::Snooze(delay);
    }
    let said = printable(body);
    let what = format!("the server answered {status}");
    if status.is_redirection() {
        let target = headers.get(LOCATION).map_or_else(String::new, |target| {
            let target = target.as_bytes();
            let shown = &target[..target.len().min(LOCATION_MAX_BYTES)];
            format!(" to {}", printable(shown))
        });
        return TaskError::permanent(format!(
            "{what}: a redirect{target}, which is not followed; give the handler the final URL"
        ));
    }
    let text = if said.is_empty() {
        what
    } else {
        format!("{what}: {said}")
    };
    match status.as_u16() {
        408 | 425 | 429 | 500..=599 => TaskError::retryable(text),
        _ => TaskError::permanent(text),
    }
}

/// How long the server wants to be left alone, given in seconds or as a date by its own clock.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(headers, &RETRY_AFTER)?.since(date(headers, &DATE).unwrap_or(now)),
    };
    Some(delay.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    Some(Timestamp::from_millis(date.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(status: u16, headers: &[(&'static str, &str)], body: &str) -> TaskError {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        refusal(
            StatusCode::from_u16(status).unwrap(),
            &map,
            body.as_bytes(),
            now,
        )
    }

    fn delay(status: u16, value: &str) -> u64 {
        match meaning(status, &[("retry-after", value)], "") {
            TaskError::Snooze(delay) => delay.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn statuses_mean_what_the_table_says() {
        for status in [408, 425, 429, 500, 501, 502, 503, 504, 599] {
            assert!(
                matches!(meaning(status, &[], "x"), TaskError::Retryable(_)),
                "{status}"
            );
        }
        for status in [
            300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 451,
        ] {
            assert!(
                matches!(meaning(status, &[], "x"), TaskError::Permanent(_)),
                "{status}"
            );
        }
    }

    #[test]
    fn the_body_is_told_and_redirects_say_where_to() {
        let TaskError::Permanent(text) = meaning(422, &[], "no such user\u{7}\n") else {
            panic!("422 is permanent")
        };
        assert_eq!(
            text,
            "the server answered 422 Unprocessable Entity: no such user"
        );
        let to = [("location", "http://elsewhere/")];
        let TaskError::Permanent(text) = meaning(302, &to, "moved") else {
            panic!("302 is permanent")
        };
        assert!(
            text.contains("a redirect to http://elsewhere/, which is not followed"),
            "{text}"
        );
    }

    #[test]
    fn retry_after_puts_off_within_bounds() {
        assert_eq!(delay(429, "30"), 30);
        assert_eq!(delay(503, "0"), 1);
        assert_eq!(delay(503, "999999999"), 3_600);
        assert_eq!(delay(503, "Thu, 01 Jan 2026 00:02:00 GMT"), 120);
        assert_eq!(delay(503, "Wed, 31 Dec 2025 00:00:00 GMT"), 1);
        let by_its_own_clock = [
            ("retry-after", "Thu, 01 Jan 2026 05:00:10 GMT"),
            ("date", "Thu, 01 Jan 2026 05:00:00 GMT"),
        ];
        let put_off = meaning(503, &by_its_own_clock, "");
        assert!(matches!(put_off, TaskError::Snooze(delay) if delay.as_secs() == 10));
        for (status, value) in [(429, "soon"), (500, "30"), (429, "-1")] {
            let meant = meaning(status, &[("retry-after", value)], "");
            assert!(matches!(meant, TaskError::Retryable(_)), "{status} {value}");
        }
    }
}
