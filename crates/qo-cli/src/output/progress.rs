//! Progress of something that takes a while: a bar on a terminal, nothing elsewhere.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::Screen;

/// A bar that moves, or one that nobody sees.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Progress towards a total, or of something whose end is not known.
    pub fn new(screen: &Screen, what: &str, total: Option<u64>) -> Self {
        let is_seen = screen.terminals().stderr && !screen.json && !screen.quiet;
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        bar.set_draw_target(if is_seen {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        let template = if total.is_some() {
            "{msg} {wide_bar} {pos}/{len}  {rate}  {eta} left"
        } else {
            "{msg} {pos}  {rate}  {elapsed}"
        };
        // The templates are constants that are known to be right; the default style is what is left if they were not.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
                // Writing to a text cannot fail.
                let _ = write!(text, "{:.0}/s", state.per_sec());
            };
            bar.set_style(style.progress_chars("━╸ ").with_key("rate", rate));
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// How much is done.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
