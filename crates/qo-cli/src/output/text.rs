//! Untrusted text, made safe and short for display.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Replaces control characters, so that a task's error message cannot clear the screen or set the title. Line breaks become spaces.
pub fn clean(text: &str) -> String {
    text.trim()
        .chars()
        .map(|character| match character {
            '\n' | '\r' | '\t' => ' ',
            other if is_harmful(other) => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// Replaces control characters other than line breaks and tabs.
pub fn clean_lines(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\t' => character,
            other if is_harmful(other) => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// Control characters, and characters that change the writing direction.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Display width of a text.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Truncates a text to a number of columns; a truncated text ends in `…`.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let mut kept = String::new();
    for character in text.chars() {
        let taken = character.width().unwrap_or(0);
        if taken > left {
            break;
        }
        left -= taken;
        kept.push(character);
    }
    let kept = kept.trim_end();
    if columns == 0 {
        String::new()
    } else {
        format!("{kept}…")
    }
}

/// A count with its noun: `1 task`, `2 tasks`, `1,234 tasks`.
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// A number with digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share of one core, if it is known.
pub fn cpu(percent: Option<u32>) -> String {
    percent
        .map(|percent| format!("{percent} %"))
        .unwrap_or_default()
}

/// A number of bytes.
pub fn bytes(number: u64) -> String {
    match number {
        0..1_024 => format!("{number} bytes"),
        1_024..1_048_576 => format!("{} KiB", number.div_ceil(1_024)),
        _ => format!("{} MiB", number.div_ceil(1_048_576)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(clean("a\u{1b}[2J\nb\tc\u{9b}"), "a\u{fffd}[2J b c\u{fffd}");
        assert_eq!(clean_lines("a\n\u{7}b"), "a\n\u{fffd}b");
        assert_eq!(clean("ab\u{202e}cd"), "ab\u{fffd}cd");
    }

    #[test]
    fn texts_are_truncated_by_columns() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("ab cd", 4), "ab…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn counts_and_sizes_are_formatted() {
        assert_eq!(count(1, "task"), "1 task");
        assert_eq!(count(1_234_567, "task"), "1,234,567 tasks");
        assert_eq!(bytes(65_537), "65 KiB");
    }
}
