//! The fixed words of the core's errors, so that a client can give back the very same ones.
//!
//! The core's errors hold words that are part of the program. What comes over the wire is text, so it is looked up here. A word
//! that is not known, because the server is newer, makes the error a plain one with the same message.

const WORDS: &[&str] = &[
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
    // What they may be.
    "0 to 9",
    "1 to 2592000 (30 days)",
    "0 to 10000",
    "at most 16",
    "later than the time at which the task is due",
    "a number from 0 to 100",
    "1 ms to 30 days",
    "at most a year",
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
    "replay",
    "archive",
    "unarchive",
    "purge",
];

/// The word of the program that equals the text.
pub(super) fn known(text: &str) -> Option<&'static str> {
    WORDS.iter().find(|word| **word == text).copied()
}
