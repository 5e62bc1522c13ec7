//! Limits on everything that a caller can make larger.

/// The maximum size of a payload inside the task's record, in bytes. A larger one is stored as a separate object.
pub const INLINE_PAYLOAD_MAX_BYTES: usize = 64 * 1024;

/// The maximum size of any payload, in bytes.
pub const STORED_PAYLOAD_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The maximum nesting depth of a JSON payload, so that no reader overflows its stack.
pub const JSON_MAX_DEPTH: usize = 128;

/// The maximum length of a number in a JSON payload. Python, for one, refuses integers of more than 4,300 digits.
pub const JSON_NUMBER_MAX_BYTES: usize = 1_000;

/// The maximum delay of a submitted task, and the maximum time until it expires: a hundred years.
pub const SUBMIT_DELAY_MAX_MS: u64 = 100 * 366 * 24 * 60 * 60 * 1_000;

/// The maximum size of a task's error text, in bytes. A longer text is truncated.
pub const ERROR_MAX_BYTES: usize = 4 * 1024;

/// The maximum size of an event's error text, in bytes. A longer text is truncated. `last_error` has the full text of
/// the newest one.
pub const EVENT_ERROR_MAX_BYTES: usize = 512;

/// The maximum number of events of a task. Older ones are dropped and counted.
pub const EVENTS_MAX: usize = 64;

/// The maximum size of a progress message, in bytes. A longer one is truncated.
pub const PROGRESS_MESSAGE_MAX_BYTES: usize = 256;

/// The maximum size of the reason of a pause, in bytes. A longer one is truncated.
pub const PAUSE_REASON_MAX_BYTES: usize = 512;

/// The maximum size of the stored log of an attempt, in bytes. Of a longer one the end is kept. Workers keep 16 KiB, which are a third
/// larger when they are encrypted.
pub const ATTEMPT_LOG_MAX_BYTES: usize = 24 * 1024;

/// The maximum number of attempts whose logs a task keeps: the last ones.
pub const ATTEMPT_LOGS_MAX: usize = 3;

/// The maximum number of tags of a task.
pub const TAGS_MAX: usize = 16;

/// The maximum timeout of an attempt.
pub const TIMEOUT_MAX_SECONDS: u64 = 30 * 24 * 60 * 60;

/// The maximum number of retries.
pub const RETRIES_MAX: u32 = 10_000;

/// The maximum delay between two attempts, and the maximum snooze.
pub const DELAY_MAX_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

/// The maximum duration of a lease.
pub const LEASE_MAX_MS: u64 = TIMEOUT_MAX_SECONDS * 1_000;

/// The maximum of every counter: the largest integer that all JSON readers represent exactly. A stored counter beyond
/// it is rejected, so that incrementing never overflows.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// The maximum size of a record to decode: two inline payloads, a full history, and room for fields of later
/// versions.
pub const RECORD_MAX_BYTES: usize = 1024 * 1024;

/// The maximum number of tasks in one claim.
pub const CLAIM_MAX_TASKS: usize = 1_000;

/// Truncates a text to at most `max_bytes`, between two characters, and marks the cut.
pub fn cut_text(text: &str, max_bytes: usize) -> Box<str> {
    const MARK: &str = "…";
    if text.len() <= max_bytes {
        return text.into();
    }
    let mut end = max_bytes.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..end], MARK].concat().into()
}

/// Truncates a text to its last `max_bytes`, between two characters, and marks the cut.
pub fn cut_front(text: &str, max_bytes: usize) -> Box<str> {
    const MARK: &str = "…";
    if text.len() <= max_bytes {
        return text.into();
    }
    let mut start = text.len() - max_bytes.saturating_sub(MARK.len());
    while !text.is_char_boundary(start) {
        start += 1;
    }
    [MARK, &text[start..]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_between_characters() {
        assert_eq!(&*cut_text("short", 5), "short");
        assert_eq!(&*cut_text("longer", 5), "lo…");
        for max in 3..40 {
            let cut = cut_text(&"äöü€😀".repeat(20), max);
            assert!(cut.len() <= max && cut.ends_with('…'), "{cut}");
            let cut = cut_front(&"äöü€😀".repeat(20), max);
            assert!(cut.len() <= max && cut.starts_with('…'), "{cut}");
        }
        assert_eq!(&*cut_front("short", 5), "short");
        assert_eq!(&*cut_front("longer", 5), "…er");
    }
}
