//! How a task refers to a blob.
//!
//! **A task refers to every blob whose address occurs in its input, its output or its last error.** Nothing has to be declared, so any
//! type of task can use blobs, in every mode. A text that only looks like an address keeps a blob longer than needed, which is harmless.
//! An address counts only if the 64 digits stand alone: a longer run of hexadecimal digits contains no address.

use qo_core::blob::ADDRESS_CHARS;
use qo_core::{BlobAddress, Json, Payload, Task};
use qo_engine::{Engine, EngineError};

/// Passes each address in a text to `each`.
pub fn in_text(text: &str, mut each: impl FnMut(BlobAddress)) {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        if !is_digit(bytes[start]) {
            start += 1;
            continue;
        }
        let run = bytes[start..]
            .iter()
            .take_while(|byte| is_digit(**byte))
            .count();
        if run == ADDRESS_CHARS
            && let Some(Ok(address)) = text.get(start..start + run).map(str::parse)
        {
            each(address);
        }
        start += run;
    }
}

/// Passes each address in a payload to `each`, also one whose digits are written as escapes (`\u0061`).
pub fn in_json(json: &Json, mut each: impl FnMut(BlobAddress)) {
    let text = json.as_str();
    in_text(text, &mut each);
    // An escape can continue a run of digits or hide one, so the text without escapes is searched as well.
    if text.contains("\\u")
        && let Ok(value) = serde_json::from_str::<serde_json::Value>(text)
    {
        in_text(&value.to_string(), &mut each);
    }
}

/// Passes the address of each blob that a task refers to to `each`. Reads payloads that are stored apart from the task.
pub async fn of_task(
    engine: &dyn Engine,
    task: &Task,
    mut each: impl FnMut(BlobAddress) + Send,
) -> Result<(), EngineError> {
    match task.input() {
        Payload::Inline(json) => in_json(&json, &mut each),
        Payload::Stored(_) => in_json(&engine.input(task).await?, &mut each),
    }
    match task.output() {
        None => {}
        Some(Payload::Inline(json)) => in_json(&json, &mut each),
        Some(Payload::Stored(_)) => {
            if let Some(json) = engine.output(task).await? {
                in_json(&json, &mut each);
            }
        }
    }
    if let Some(error) = &task.last_error {
        in_text(error, &mut each);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::address_of;

    fn found(text: &str) -> Vec<BlobAddress> {
        let mut found = Vec::new();
        in_json(&Json::parse(text.to_owned()).unwrap(), |address| {
            found.push(address);
        });
        found
    }

    #[test]
    fn addresses_are_found_anywhere_in_a_payload() {
        let (a, b) = (address_of(b"a"), address_of(b"b"));
        assert_eq!(
            found(&format!(
                r#"{{"binary_addr":"{a}","x":[{{"y":"sha256:{b}"}}]}}"#
            )),
            [a, b]
        );
        assert_eq!(found(&format!(r#""{a}/{b}""#)), [a, b]);
        assert_eq!(found(r#"{"x":"abc"}"#), []);
    }

    #[test]
    fn longer_and_shorter_runs_are_no_addresses() {
        let a = address_of(b"a").to_string();
        assert_eq!(found(&format!(r#""{a}0""#)), []);
        assert_eq!(found(&format!(r#""{}""#, &a[1..])), []);
        assert_eq!(found(&format!(r#""{}""#, a.to_uppercase())), []);
    }

    #[test]
    fn escaped_digits_do_not_hide_an_address() {
        let a = address_of(b"a");
        let text = a.to_string();
        let first = text.as_bytes()[0];
        assert_eq!(found(&format!(r#""\u00{first:02x}{}""#, &text[1..])), [a]);
        // The escape ends with digits that look like the beginning of the run.
        assert_eq!(found(&format!(r#""\u0020{text}""#)), [a]);
    }
}
