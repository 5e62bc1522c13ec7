//! How an unsuccessful response maps to the result of the attempt.
//!
//! | status | result |
//! | --- | --- |
//! | 2xx | success; the body is the task's output |
//! | 429 or 503 with `Retry-After` | snoozed for that long (1 s to 1 h), not counted as a retry |
//! | 408, 425, 429, 5xx | retried |
//! | any other 4xx, 3xx | permanent failure; redirects are not followed |

use std::time::Duration;

use chrono::DateTime;
use qo::{TaskError, Timestamp};
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};

use crate::handlers::output::printable;

/// Maximum delay that a server can request at once. After that it receives another request and can delay the task again.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Minimum delay, so that `Retry-After: 0` does not cause a busy loop.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// Maximum length of a redirect target in an error.
const LOCATION_MAX_BYTES: usize = 256;

/// The error for a response other than 2xx.
pub(super) fn error_for(
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
    let body = printable(body);
    let summary = format!("the server responded with {status}");
    if status.is_redirection() {
        let target = headers.get(LOCATION).map_or_else(String::new, |target| {
            let target = target.as_bytes();
            let shown = &target[..target.len().min(LOCATION_MAX_BYTES)];
            format!(" to {}", printable(shown))
        });
        return TaskError::permanent(format!(
            "{summary}: redirects{target} are not followed; use the final URL for the handler"
        ));
    }
    let text = if body.is_empty() {
        summary
    } else {
        format!("{summary}: {body}")
    };
    match status.as_u16() {
        408 | 425 | 429 | 500..=599 => TaskError::retryable(text),
        _ => TaskError::permanent(text),
    }
}

/// The delay in `Retry-After`, given in seconds or as a date on the server's clock.
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

    fn error(status: u16, headers: &[(&'static str, &str)], body: &str) -> TaskError {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        error_for(
            StatusCode::from_u16(status).unwrap(),
            &map,
            body.as_bytes(),
            now,
        )
    }

    fn delay(status: u16, value: &str) -> u64 {
        match error(status, &[("retry-after", value)], "") {
            TaskError::Snooze(delay) => delay.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn statuses_map_as_documented() {
        for status in [408, 425, 429, 500, 501, 502, 503, 504, 599] {
            assert!(
                matches!(error(status, &[], "x"), TaskError::Retryable(_)),
                "{status}"
            );
        }
        for status in [
            300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 451,
        ] {
            assert!(
                matches!(error(status, &[], "x"), TaskError::Permanent(_)),
                "{status}"
            );
        }
    }

    #[test]
    fn errors_contain_the_body_or_the_redirect_target() {
        let TaskError::Permanent(text) = error(422, &[], "no such user\u{7}\n") else {
            panic!("422 is permanent")
        };
        assert_eq!(
            text,
            "the server responded with 422 Unprocessable Entity: no such user"
        );
        let to = [("location", "http://elsewhere/")];
        let TaskError::Permanent(text) = error(302, &to, "moved") else {
            panic!("302 is permanent")
        };
        assert!(
            text.contains("redirects to http://elsewhere/ are not followed"),
            "{text}"
        );
    }

    #[test]
    fn retry_after_snoozes_within_limits() {
        assert_eq!(delay(429, "30"), 30);
        assert_eq!(delay(503, "0"), 1);
        assert_eq!(delay(503, "999999999"), 3_600);
        assert_eq!(delay(503, "Thu, 01 Jan 2026 00:02:00 GMT"), 120);
        assert_eq!(delay(503, "Wed, 31 Dec 2025 00:00:00 GMT"), 1);
        let on_server_clock = [
            ("retry-after", "Thu, 01 Jan 2026 05:00:10 GMT"),
            ("date", "Thu, 01 Jan 2026 05:00:00 GMT"),
        ];
        let snoozed = error(503, &on_server_clock, "");
        assert!(matches!(snoozed, TaskError::Snooze(delay) if delay.as_secs() == 10));
        for (status, value) in [(429, "soon"), (500, "30"), (429, "-1")] {
            let error = error(status, &[("retry-after", value)], "");
            assert!(matches!(error, TaskError::Retryable(_)), "{status} {value}");
        }
    }
}
