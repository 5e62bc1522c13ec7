//! Colours, used on a terminal only and not if `NO_COLOR` is set.

use std::env;
use std::io::{self, IsTerminal as _};

/// Colours text if colours are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// The setting for standard output.
    pub(crate) fn for_stdout() -> Self {
        let disabled = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            on: io::stdout().is_terminal() && !disabled,
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
impl Paint {
    /// No colours.
    pub(crate) const OFF: Self = Self { on: false };
}
