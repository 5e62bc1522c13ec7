//! What a command printed or a server answered, as an output or as the text of an error.
//!
//! Both come from programs that qo knows nothing about. So everything here is bounded, and what goes into an error is
//! stripped of control characters: it will be shown on terminals.

use qo::Json;
use qo_core::limits::ERROR_MAX_BYTES;

/// The largest output that is kept, unless the worker is told otherwise.
pub const OUTPUT_DEFAULT_MAX_BYTES: u64 = 1024 * 1024;

/// The output that some bytes are: nothing if they are blank, themselves if they are JSON, else a JSON string with the text.
///
/// What is not UTF-8 loses its odd bytes to the replacement character, because JSON cannot hold them.
pub fn output(bytes: &[u8]) -> Option<Json> {
    let text = String::from_utf8_lossy(bytes);
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return None;
    }
    Json::parse(trimmed).ok().or_else(|| {
        // Spaces at the front may mean something in a text; the line break at its end never does.
        let text = text.trim_end_matches(['\n', '\r']);
        Json::from_value(&text).ok()
    })
}

/// A text that can be shown: without control characters, except for line breaks and tabs, and without blank ends.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shown: String = without_escapes(&text)
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    shown.trim().to_owned()
}

/// Takes out the escape sequences with which programs colour their output.
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

/// An error: what happened, then the end of what was said about it, as much as a task keeps.
///
/// The last line comes first too, because tables show nothing but the first line, and the last one tends to say what went wrong.
pub fn error_text(what: &str, said: &str) -> String {
    let Some(last) = said.lines().rev().find(|line| !line.trim().is_empty()) else {
        return what.to_owned();
    };
    let last = cut_front(last.trim(), ERROR_MAX_BYTES / 8);
    let first = format!("{what}: {last}");
    if said.lines().count() == 1 && last.len() == said.len() {
        return first;
    }
    let room = ERROR_MAX_BYTES.saturating_sub(first.len() + 1);
    format!("{first}\n{}", cut_front(said, room))
}

/// The end of a text, at most `max_bytes` of it, between two characters.
fn cut_front(text: &str, max_bytes: usize) -> &str {
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
    fn json_stays_json_and_other_text_becomes_a_string() {
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
    fn errors_show_no_control_characters() {
        assert_eq!(
            printable(b"\x1b[31mred\x1b[0m\x07 text\r\n\tmore\x00\n"),
            "red text\n\tmore"
        );
        assert_eq!(printable(b"\x1b]0;title\x07x"), "]0;titlex");
    }

    #[test]
    fn the_last_line_leads_and_the_whole_fits() {
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
