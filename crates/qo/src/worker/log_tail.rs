//! The end of what a handler printed, in memory until the attempt ends.

use std::sync::Mutex;

use qo_core::limits::cut_front;

use crate::lock;

/// How much of the log of an attempt a worker keeps by default.
pub(super) const LOG_DEFAULT_MAX_BYTES: usize = 16 * 1024;

/// The end of a log.
#[derive(Debug)]
pub(super) struct LogTail {
    max_bytes: usize,
    text: Mutex<String>,
}

impl LogTail {
    /// A log that keeps so many bytes; none, if it is 0.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            text: Mutex::default(),
        }
    }

    /// Adds lines.
    pub(super) fn push(&self, lines: &str) {
        if self.max_bytes == 0 {
            return;
        }
        let mut text = lock(&self.text);
        text.push_str(&cut_front(lines, self.max_bytes));
        if !text.ends_with('\n') {
            text.push('\n');
        }
        // The beginning is dropped rarely, so that a line costs no copy of all others.
        if text.len() > 4 * self.max_bytes {
            *text = cut_front(&text, self.max_bytes).into_string();
        }
    }

    /// Takes the log.
    pub(super) fn take(&self) -> Option<Box<str>> {
        let text = std::mem::take(&mut *lock(&self.text));
        (!text.is_empty()).then(|| cut_front(&text, self.max_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_marked() {
        let tail = LogTail::new(40);
        assert_eq!(tail.take(), None);
        tail.push("one");
        tail.push("two\nthree\n");
        assert_eq!(tail.take().as_deref(), Some("one\ntwo\nthree\n"));
        assert_eq!(tail.take(), None);
        for number in 0..1_000 {
            tail.push(&format!("line {number}"));
            assert!(lock(&tail.text).len() <= 240);
        }
        let kept = tail.take().unwrap();
        assert!(kept.len() <= 40 && kept.starts_with('…'), "{kept}");
        assert!(kept.ends_with("line 998\nline 999\n"), "{kept}");
        tail.push(&"x".repeat(100_000));
        assert!(tail.take().unwrap().len() <= 40);
        let off = LogTail::new(0);
        off.push("one");
        assert_eq!(off.take(), None);
    }
}
