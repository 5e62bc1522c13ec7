//! A limit on everything that a caller can make larger.

/// The largest payload, in bytes, that is kept inside the task's own record. A larger one is stored as an object of its own.
pub const INLINE_PAYLOAD_MAX_BYTES: usize = 64 * 1024;

/// The largest payload that is stored at all.
pub const STORED_PAYLOAD_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// How deep a JSON payload may nest, so that no reader runs out of stack.
pub const JSON_MAX_DEPTH: usize = 128;

/// The longest error text that a task keeps; what is longer is cut.
pub const ERROR_MAX_BYTES: usize = 4 * 1024;

/// The longest error text that an event keeps; what is longer is cut. The newest one is in full in `last_error`.
pub const EVENT_ERROR_MAX_BYTES: usize = 512;

/// How many events a task keeps; older ones are dropped and counted.
pub const EVENTS_MAX: usize = 64;

/// The longest message that goes with a progress report; what is longer is cut.
pub const PROGRESS_MESSAGE_MAX_BYTES: usize = 256;

/// How many tags a task can have.
pub const TAGS_MAX: usize = 16;

/// The longest time that an attempt may take.
pub const TIMEOUT_MAX_SECONDS: u64 = 30 * 24 * 60 * 60;

/// How often a task can be retried.
pub const RETRIES_MAX: u32 = 10_000;

/// The longest pause between two attempts, and the longest snooze.
pub const DELAY_MAX_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

/// The longest lease.
pub const LEASE_MAX_MS: u64 = TIMEOUT_MAX_SECONDS * 1_000;

/// The highest that anything is counted: the largest number that every reader of JSON gets right. Nobody counts so far, and a stored number
/// beyond it would have no next one.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// The largest record that is decoded: two inline payloads, a full history, and room for what a later version adds.
pub const RECORD_MAX_BYTES: usize = 1024 * 1024;

/// How many tasks one claim can hand out.
pub const CLAIM_MAX_TASKS: usize = 1_000;

/// Cuts a text at `max_bytes` or before, between two characters, and says that it was cut.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(&*cut_text("short", 5), "short");
        assert_eq!(&*cut_text("longer", 5), "lo…");
        for max in 3..40 {
            let cut = cut_text(&"äöü€😀".repeat(20), max);
            assert!(cut.len() <= max && cut.ends_with('…'), "{cut}");
        }
    }
}
