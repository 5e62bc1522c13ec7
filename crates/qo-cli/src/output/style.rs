//! Colours and when to use them.

use anstyle::{AnsiColor, Style};
use qo::Status;

use crate::environment::Environment;

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColourChoice {
    /// Whether to colour a stream.
    pub fn decide(self, environment: &Environment, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                if environment.var("NO_COLOR").is_some() {
                    return false;
                }
                if environment
                    .var("CLICOLOR_FORCE")
                    .is_some_and(|value| value != "0")
                {
                    return true;
                }
                is_terminal
                    && environment.var("TERM") != Some("dumb")
                    && environment.var("CLICOLOR") != Some("0")
            }
        }
    }
}

/// Applies styles if colours are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Paint {
    /// Whether colours are on.
    pub on: bool,
}

/// Emphasis.
pub const BOLD: Style = Style::new().bold();
/// Secondary text.
pub const DIM: Style = Style::new().dimmed();
/// Errors.
pub const RED: Style = AnsiColor::Red.on_default();
/// Success.
pub const GREEN: Style = AnsiColor::Green.on_default();
/// Warnings.
pub const YELLOW: Style = AnsiColor::Yellow.on_default();
/// Running work.
pub const BLUE: Style = AnsiColor::Blue.on_default();
/// Commands to type.
pub const CYAN: Style = AnsiColor::Cyan.on_default();

impl Paint {
    /// Applies a style to a text.
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.on && style != Style::new() && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// The style of a status.
pub fn of_status(status: Status) -> Style {
    match status {
        Status::Pending => YELLOW,
        Status::Running => BLUE,
        Status::Completed => GREEN,
        Status::Failed => RED,
        Status::Archived | Status::Cancelled => DIM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Environment {
        Environment {
            variables: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Environment::default()
        }
    }

    #[test]
    fn the_flag_overrides_variables_override_the_terminal() {
        use ColourChoice::{Always, Auto, Never};
        for (choice, variables, is_terminal, expected) in [
            (Auto, &[][..], true, true),
            (Auto, &[], false, false),
            (Auto, &[("NO_COLOR", "1")], true, false),
            (Auto, &[("NO_COLOR", "")], true, true),
            (Auto, &[("CLICOLOR_FORCE", "1")], false, true),
            (Auto, &[("CLICOLOR_FORCE", "0")], false, false),
            (
                Auto,
                &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")],
                true,
                false,
            ),
            (Auto, &[("TERM", "dumb")], true, false),
            (Auto, &[("CLICOLOR", "0")], true, false),
            (Always, &[("NO_COLOR", "1")], false, true),
            (Never, &[("CLICOLOR_FORCE", "1")], true, false),
        ] {
            let decided = choice.decide(&with(variables), is_terminal);
            assert_eq!(decided, expected, "{choice:?} {variables:?} {is_terminal}");
        }
    }

    #[test]
    fn without_colours_text_is_unchanged() {
        assert_eq!(Paint { on: false }.paint(RED, "x"), "x");
        assert_eq!(Paint { on: true }.paint(RED, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
