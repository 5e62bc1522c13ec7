//! The part of an error that failures of the same cause share.
//!
//! Errors of the same cause often differ in numbers, ids, times and hexadecimal values. These are replaced before errors are compared. The
//! dashboard does the same (`failures.js`); both are tested with `crates/qo-ui/ui/tests/vectors/errors.json`.

use qo::TaskId;

const LINE_MAX: usize = 1_000;
const PATTERN_MAX: usize = 200;
const HEX_MIN: usize = 8;
const ID_LENGTH: usize = 36;

/// The first line of an error, with its changing parts replaced.
pub(super) fn error_pattern(error: &str) -> String {
    let line = error.trim().lines().next().unwrap_or_default();
    let line: String = line.chars().take(LINE_MAX).collect();
    let mut pattern = String::new();
    let mut rest = line.as_str();
    let mut before: Option<char> = None;
    while let Some(first) = rest.chars().next() {
        let begins_word = before.is_none_or(|before| !is_word(before));
        let found = id(rest)
            .or_else(|| time(rest))
            .or_else(|| begins_word.then(|| hex(rest)).flatten())
            .or_else(|| number(rest));
        let length = if let Some((length, name)) = found {
            pattern.push_str(name);
            length
        } else {
            pattern.push(first);
            first.len_utf8()
        };
        before = rest.get(..length).and_then(|taken| taken.chars().last());
        rest = rest.get(length..).unwrap_or_default();
    }
    let pattern: String = pattern.chars().take(PATTERN_MAX).collect();
    if pattern.is_empty() {
        "no error text".to_owned()
    } else {
        pattern
    }
}

type Found = Option<(usize, &'static str)>;

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn id(text: &str) -> Found {
    let id = text.get(..ID_LENGTH)?;
    id.parse::<TaskId>().ok()?;
    Some((ID_LENGTH, "‹id›"))
}

/// `2026-11-17T05:20:11`, with a fraction and a zone if there is one.
fn time(text: &str) -> Found {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let head = bytes.get(..FORM.len())?;
    let fits = head.iter().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b' '),
        form => byte == form,
    });
    if !fits {
        return None;
    }
    let mut length = FORM.len();
    if bytes.get(length) == Some(&b'.') {
        let digits = digits(bytes, length + 1);
        if digits > 0 {
            length += 1 + digits;
        }
    }
    match bytes.get(length) {
        Some(b'Z') => length += 1,
        Some(b'+' | b'-') if digits(bytes, length + 1) == 2 => {
            let minutes = length + 3 + usize::from(bytes.get(length + 3) == Some(&b':'));
            if digits(bytes, minutes) >= 2 {
                length = minutes + 2;
            }
        }
        Some(b'+' | b'-') if digits(bytes, length + 1) >= 4 => length += 5,
        _ => {}
    }
    Some((length, "‹time›"))
}

fn digits(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// A word of hexadecimal digits with at least one decimal one.
fn hex(text: &str) -> Found {
    let body = text.strip_prefix("0x").unwrap_or(text);
    let prefix = text.len() - body.len();
    let length = body.bytes().take_while(u8::is_ascii_hexdigit).count();
    let word = body.get(..length)?;
    let is_word_end = !body.get(length..)?.starts_with(is_word);
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    (length >= HEX_MIN && is_word_end && has_digit).then_some((prefix + length, "‹hex›"))
}

/// Digits, in groups that points or commas separate.
fn number(text: &str) -> Found {
    let bytes = text.as_bytes();
    let mut length = digits(bytes, 0);
    if length == 0 {
        return None;
    }
    while matches!(bytes.get(length), Some(b'.' | b',')) {
        let group = digits(bytes, length + 1);
        if group == 0 {
            break;
        }
        length += 1 + group;
    }
    Some((length, "‹n›"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_the_dashboard() {
        let text = include_str!("../../../qo-ui/ui/tests/vectors/errors.json");
        let vectors: Vec<(String, String)> = serde_json::from_str(text).unwrap();
        assert!(vectors.len() > 10);
        for (error, pattern) in vectors {
            assert_eq!(error_pattern(&error), pattern, "{error:?}");
        }
        let long = error_pattern(&"é".repeat(5_000));
        assert_eq!(long.chars().count(), PATTERN_MAX);
    }
}
