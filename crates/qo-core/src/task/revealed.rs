//! A task as it is shown: a client that decrypts replaces what the stored record has in encrypted form.
//!
//! The result is for reading only. No engine stores it.

use super::Task;
use crate::json::Json;

impl Task {
    /// Replaces the input in the record by what `reveal` returns for it.
    pub fn reveal_input(&mut self, reveal: impl FnOnce(&Json) -> Option<Json>) {
        if let Some(input) = self.input.as_ref().and_then(reveal) {
            self.input = Some(input);
        }
    }

    /// Replaces the output in the record by what `reveal` returns for it.
    pub fn reveal_output(&mut self, reveal: impl FnOnce(&Json) -> Option<Json>) {
        if let Some(output) = self.output.as_ref().and_then(reveal) {
            self.output = Some(output);
        }
    }

    /// Replaces the last error and the errors of the events by what `reveal` returns for them.
    pub fn reveal_errors(&mut self, mut reveal: impl FnMut(&str) -> Option<Box<str>>) {
        let of_events = self
            .events
            .as_mut_slice()
            .iter_mut()
            .map(|event| &mut event.error);
        for error in std::iter::once(&mut self.last_error).chain(of_events) {
            if let Some(revealed) = error.as_deref().and_then(&mut reveal) {
                *error = Some(revealed);
            }
        }
    }

    /// Replaces the logs by what `reveal` returns for them.
    pub fn reveal_logs(&mut self, mut reveal: impl FnMut(&str) -> Option<Box<str>>) {
        for log in self.logs.iter_mut().flatten() {
            if let Some(revealed) = reveal(&log.text) {
                log.text = revealed;
            }
        }
    }
}
