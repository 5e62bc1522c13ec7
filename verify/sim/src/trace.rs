//! The trace of a run.
//!
//! A campaign keeps no lines, because writing them costs more than the run. A seed that fails is run again with them.

use std::time::Duration;

/// The lines of a trace, if they are kept.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that keeps its lines, or one that does not.
    pub fn new(keeps: bool) -> Self {
        Self {
            lines: keeps.then(Vec::new),
        }
    }

    /// Adds a line, if lines are kept.
    pub fn note(&mut self, at: Duration, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>11.3} {}", at.as_secs_f64(), line()));
        }
    }

    /// The lines so far.
    pub fn take(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
