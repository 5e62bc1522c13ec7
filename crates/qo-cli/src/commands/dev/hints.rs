//! Suggested commands, in a form that can be typed here.

use qo::TaskId;

/// How to call `qo` for the queue on display.
#[derive(Debug, Clone)]
pub(super) struct Hints {
    program: String,
    store: String,
    /// Whether other processes can open the queue.
    is_shared: bool,
    /// The URL of the dashboard.
    dashboard: Option<String>,
}

impl Hints {
    /// `program` is the name this process was called by. `store` is the store URL if it was given as a flag, since other commands then
    /// need it too.
    pub(super) fn new(program: &str, store: Option<&str>, is_shared: bool) -> Self {
        Self {
            program: program.to_owned(),
            store: store.map_or_else(String::new, |url| format!(" --store {}", quoted(url))),
            is_shared,
            dashboard: None,
        }
    }

    /// Adds the URL of the dashboard.
    pub(super) fn with_dashboard(mut self, url: Option<String>) -> Self {
        self.dashboard = url;
        self
    }

    /// A command line that can be typed.
    pub(super) fn command(&self, words: &str) -> String {
        format!("  {} {words}{}", self.program, self.store)
    }

    /// Suggestions for the user: a heading and commands.
    pub(super) fn next_steps(&self, any: Option<TaskId>, failed: Option<TaskId>) -> Vec<String> {
        let mut lines: Vec<String> = self
            .dashboard
            .iter()
            .map(|url| format!("Dashboard: {url}"))
            .collect();
        if !self.is_shared {
            lines.push("This queue is in memory, so other commands cannot open it. Omit --store to keep it on disk.".to_owned());
            return lines;
        }
        lines.push("Try in another terminal:".to_owned());
        lines.push(self.command("submit --type demo.greet --input '{\"name\": \"you\"}' --wait"));
        lines.push(self.command("list --watch"));
        if let Some(id) = any {
            lines.push(self.command(&format!("status {id}")));
        }
        if let Some(id) = failed {
            lines.push(self.command(&format!("history {id}")));
            lines.push(self.command(&format!("replay {id}")));
        }
        lines
    }
}

/// Quotes a word for the shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_the_shell() {
        let hints = Hints::new("target/release/qo", Some("s3://b/p?region=x y"), true);
        assert_eq!(
            hints.command("list"),
            "  target/release/qo list --store 's3://b/p?region=x y'"
        );
        let plain = Hints::new("qo", Some("sqlite:a.db"), true);
        assert_eq!(plain.command("list"), "  qo list --store sqlite:a.db");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_queue_in_memory_has_no_suggested_commands() {
        let steps = Hints::new("qo", Some("memory:"), false).next_steps(None, None);
        assert!(
            steps.len() == 1 && steps[0].contains("in memory"),
            "{steps:?}"
        );
    }
}
