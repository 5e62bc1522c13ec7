//! Commands to try next, as they have to be typed here.

use qo::TaskId;

/// How `qo` is called on this machine for the queue that is shown.
#[derive(Debug, Clone)]
pub(super) struct Hints {
    program: String,
    store: String,
    /// Whether another process sees the queue at all.
    is_shared: bool,
    /// Where a browser sees it.
    dashboard: Option<String>,
}

impl Hints {
    /// `program` is how this process was called; `store` is the URL, if it was given as a flag, so that others have to give it, too.
    pub(super) fn new(program: &str, store: Option<&str>, is_shared: bool) -> Self {
        Self {
            program: program.to_owned(),
            store: store.map_or_else(String::new, |url| format!(" --store {}", quoted(url))),
            is_shared,
            dashboard: None,
        }
    }

    /// The same, with where a browser sees the queue.
    pub(super) fn with_dashboard(mut self, url: Option<String>) -> Self {
        self.dashboard = url;
        self
    }

    /// A command as it has to be typed.
    pub(super) fn command(&self, words: &str) -> String {
        format!("  {} {words}{}", self.program, self.store)
    }

    /// What to try while it runs: a heading, and commands.
    pub(super) fn next_steps(&self, any: Option<TaskId>, failed: Option<TaskId>) -> Vec<String> {
        let mut lines: Vec<String> = self
            .dashboard
            .iter()
            .map(|url| format!("Dashboard: {url}"))
            .collect();
        if !self.is_shared {
            lines.push("This queue is in memory, where no other command sees it; leave --store out to keep it".to_owned());
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

/// A word as a shell has to see it.
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
    fn commands_can_be_typed_as_they_are_shown() {
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
    fn a_queue_in_memory_is_seen_by_nobody_else() {
        let steps = Hints::new("qo", Some("memory:"), false).next_steps(None, None);
        assert!(
            steps.len() == 1 && steps[0].contains("in memory"),
            "{steps:?}"
        );
    }
}
