//! Conversion of bytes from a command or a server into a task's output or error text.
//!
//! The bytes come from unknown programs. So everything is bounded, and control characters are removed from error texts, since they
//! are shown on terminals.

use qo::Json;
use qo_core::limits::ERROR_MAX_BYTES;

/// Default maximum size of an output.
pub const OUTPUT_DEFAULT_MAX_BYTES: u64 = 1024 * 1024;

/// Converts bytes to an output: `None` if they are blank, the JSON itself if they are JSON, else a JSON string.
///
/// Invalid UTF-8 is replaced by the replacement character, because JSON cannot represent it.
pub fn output(bytes: &[u8]) -> Option<Json> {
    let text = String::from_utf8_lossy(bytes);
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return None;
    }
    Json::parse(trimmed).ok().or_else(|| {
        // Leading spaces may be significant; the line break at the end is not.
        let text = text.trim_end_matches(['\n', '\r']);
        Json::from_value(&text).ok()
    })
}

/// Removes control characters, except line breaks and tabs, and trims the text.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shown: String = without_escapes(&text)
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    shown.trim().to_owned()
}

/// Removes ANSI escape sequences.
fn without_escapes(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.peek() == Some(&'[') {
            chars.next();
            // A sequence ends with its first character from '@' to '~'.
            while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
        } else {
            kept.push(c);
        }
    }
    kept
}

/// Builds an error text: a summary, then the end of `details`, within the size limit of a task's error.
///
/// The last line of `details` is also part of the first line, because tables show only that one, and the last line usually names the
/// problem.
pub fn error_text(summary: &str, details: &str) -> String {
    let Some(last) = details.lines().rev().find(|line| !line.trim().is_empty()) else {
        return summary.to_owned();
    };
    let last = cut_front(last.trim(), ERROR_MAX_BYTES / 8);
    let first = format!("{summary}: {last}");
    if details.lines().count() == 1 && last.len() == details.len() {
        return first;
    }
    let room = ERROR_MAX_BYTES.saturating_sub(first.len() + 1);
    format!("{first}\n{}", cut_front(details, room))
}

/// The end of a text, at most `max_bytes` long, cut at a character boundary.
pub(super) fn cut_front(text: &str, max_bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(max_bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_kept_and_other_text_becomes_a_string() {
        let kept = |bytes: &[u8]| output(bytes).map(|json| json.as_str().to_owned());
        assert_eq!(kept(b""), None);
        assert_eq!(kept(b" \n"), None);
        assert_eq!(kept(b"{\"a\": 1}\n").as_deref(), Some("{\"a\": 1}"));
        assert_eq!(kept(b"null\n").as_deref(), Some("null"));
        assert_eq!(kept(b"12 apples\n").as_deref(), Some("\"12 apples\""));
        assert_eq!(kept(b"  a\n b\n\n").as_deref(), Some("\"  a\\n b\""));
        assert_eq!(kept(b"a\xffb").as_deref(), Some("\"a\u{fffd}b\""));
        assert_eq!(kept(b"{\"a\": 1}{").as_deref(), Some("\"{\\\"a\\\": 1}{\""));
    }

    #[test]
    fn control_characters_are_removed_from_errors() {
        assert_eq!(
            printable(b"\x1b[31mred\x1b[0m\x07 text\r\n\tmore\x00\n"),
            "red text\n\tmore"
        );
        assert_eq!(printable(b"\x1b]0;title\x07x"), "]0;titlex");
    }

    #[test]
    fn an_error_starts_with_the_last_line_and_is_bounded() {
        assert_eq!(error_text("exit code 1", ""), "exit code 1");
        assert_eq!(error_text("exit code 1", "boom"), "exit code 1: boom");
        assert_eq!(
            error_text("exit code 1", "Trace\nboom"),
            "exit code 1: boom\nTrace\nboom"
        );
        let long = "ä".repeat(10_000);
        let text = error_text("exit code 1", &long);
        assert!(text.len() <= ERROR_MAX_BYTES, "{}", text.len());
        assert!(text.len() > ERROR_MAX_BYTES - 8, "{}", text.len());
        assert!(text.ends_with("ää"));
    }
}
