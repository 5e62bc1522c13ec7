//! The static texts in the core's errors, so that a client can rebuild the same errors.
//!
//! The core's errors contain `&'static str` values. Values from the wire are looked up here. If a value is unknown because the
//! server is newer, the error becomes a plain one with the same message.

const TEXTS: &[&str] = &[
    // Fields.
    "priority",
    "timeout_seconds",
    "max_retries",
    "tags",
    "expires_at",
    "percent",
    "lease_ms",
    "delay_ms",
    "input",
    "output",
    "idempotency_key",
    "available_at",
    // Allowed values.
    "0 to 9",
    "1 to 2592000 (30 days)",
    "0 to 10000",
    "at most 16",
    "later than the time at which the task is due",
    "a number from 0 to 100",
    "1 ms to 30 days",
    "at most a year",
    "given, if it says how long the key is held or what happens on a conflict",
    "in the future, if a waiting task is postponed to it",
    "small enough for the task's record, if it may replace another one",
    // Actions.
    "claim",
    "renew",
    "progress",
    "complete",
    "fail",
    "release",
    "snooze",
    "expire lease",
    "expire",
    "cancel",
    "run now",
    "amend",
    "replay",
    "redrive",
    "archive",
    "unarchive",
    "purge",
];

/// The static text that equals this one.
pub(super) fn static_text(text: &str) -> Option<&'static str> {
    TEXTS.iter().find(|known| **known == text).copied()
}
