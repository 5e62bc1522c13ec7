//! Progress bars on a terminal.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::Screen;

/// A progress bar, hidden if standard error is not a terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar. Without a total, only the count is shown.
    pub fn new(screen: &Screen, label: &str, total: Option<u64>) -> Self {
        let is_visible = screen.terminals().stderr && !screen.json && !screen.quiet;
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        bar.set_draw_target(if is_visible {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        let template = if total.is_some() {
            "{msg} {wide_bar} {pos}/{len}  {rate}  {eta} left"
        } else {
            "{msg} {pos}  {rate}  {elapsed}"
        };
        // The templates are valid constants. If they were not, the default style would be used.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{:.0}/s", state.per_sec());
            };
            bar.set_style(style.progress_chars("━╸ ").with_key("rate", rate));
        }
        bar.set_message(label.to_owned());
        Self(bar)
    }

    /// Sets the position.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
