//! Indented JSON.
//!
//! The text is indented without parsing it into values, which would change numbers with many digits.

/// Indents a JSON text by two spaces per level. Short texts stay on one line.
pub fn pretty(json: &str) -> String {
    const SHORT: usize = 60;
    let compact = compact(json);
    if compact.len() <= SHORT {
        return compact;
    }
    let mut text = String::with_capacity(compact.len() * 2);
    let mut depth = 0_usize;
    let mut strings = Strings::default();
    let mut characters = compact.chars().peekable();
    while let Some(character) = characters.next() {
        if strings.contain(character) {
            text.push(character);
            continue;
        }
        match character {
            '{' | '[' if matches!(characters.peek(), Some('}' | ']')) => {
                text.push(character);
                text.extend(characters.next());
            }
            '{' | '[' => {
                depth += 1;
                text.push(character);
                new_line(&mut text, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(',');
                // Skips the space of the compact form.
                characters.next_if_eq(&' ');
                new_line(&mut text, depth);
            }
            other => text.push(other),
        }
    }
    text
}

/// A JSON text on one line, with a space after each colon and comma.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut strings = Strings::default();
    for character in json.chars() {
        if strings.contain(character) {
            text.push(character);
            continue;
        }
        match character {
            ' ' | '\n' | '\r' | '\t' => {}
            ':' | ',' => {
                text.push(character);
                text.push(' ');
            }
            other => text.push(other),
        }
    }
    text
}

/// Tells the characters of strings from the others.
#[derive(Default)]
struct Strings {
    inside: bool,
    escaped: bool,
}

impl Strings {
    /// Whether this character, the next one of the text, belongs to a string. The quotes do.
    fn contain(&mut self, character: char) -> bool {
        let was_inside = self.inside;
        match character {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = was_inside,
            '"' => self.inside = !was_inside,
            _ => {}
        }
        was_inside || self.inside
    }
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_stay_on_one_line() {
        assert_eq!(pretty(r#"{"a" :1,"b":[ ]}"#), r#"{"a": 1, "b": []}"#);
        assert_eq!(pretty("null"), "null");
    }

    #[test]
    fn long_texts_are_indented_and_numbers_are_unchanged() {
        let json =
            r#"{"n":123456789012345678901234567890,"s":"a, {b}: \"c\"","e":{},"l":[1,{"x":2}]}"#;
        let expected = r#"{
  "n": 123456789012345678901234567890,
  "s": "a, {b}: \"c\"",
  "e": {},
  "l": [
    1,
    {
      "x": 2
    }
  ]
}"#;
        assert_eq!(pretty(json), expected);
    }
}
