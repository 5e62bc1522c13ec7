//! Encrypted payloads and errors that this process cannot decrypt, as people read them.

use std::borrow::Cow;

use qo::Json;
use qo::encryption::{error_sealed_with, sealed_with};

/// An error, or in place of an encrypted one the name of its key.
pub fn error(error: &str) -> Cow<'_, str> {
    match error_sealed_with(error) {
        Some(key) => label(key).into(),
        None => error.into(),
    }
}

/// What to show in place of an encrypted payload; `None` if it is not encrypted.
pub fn payload(json: &Json) -> Option<String> {
    sealed_with(json).map(|key| label(&key))
}

fn label(key: &str) -> String {
    format!("encrypted with key {key}")
}
