//! The clock of this crate.
//!
//! It drives real processes, so it reads the machine's clocks. Only this module does.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Short against the start of a server, and long enough that waiting costs no noticeable CPU time.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition` until it holds or `limit` has passed, at least once. Returns whether it held.
#[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= limit {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Seconds since 1970, for signatures.
#[expect(
    clippy::disallowed_methods,
    reason = "a real server judges a signature by the real time"
)]
pub(crate) fn unix_now_s() -> i64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_condition_or_with_the_limit() {
        let mut calls = 0;
        assert!(wait_until(Duration::from_mins(1), || {
            calls += 1;
            calls == 3
        }));
        assert_eq!(calls, 3);
        assert!(!wait_until(Duration::ZERO, || false));
    }
}
