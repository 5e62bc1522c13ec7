//! The terminal behind standard output: its size, and drawing over what was there.

use std::io::{self, Write};

/// How large a terminal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Its width.
    pub columns: usize,
    /// Its height.
    pub rows: usize,
}

/// The size of the terminal behind standard output, if it is one and tells.
pub fn size() -> Option<Size> {
    #[cfg(unix)]
    {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then_some(Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        })
    }
    #[cfg(not(unix))]
    None
}

/// A second page of the terminal that is drawn on; what was there before comes back when this is dropped.
#[derive(Debug)]
pub struct Canvas(());

impl Canvas {
    /// Opens the page, hides the cursor, and lets lines that are too long end at the edge.
    pub fn open() -> io::Result<Self> {
        let mut stdout = io::stdout();
        stdout.write_all(b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J")?;
        stdout.flush()?;
        Ok(Self(()))
    }

    /// Draws a text from the first line on, over what was there, as far as the terminal is high.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let frame = frame(text, size().map(|size| size.rows));
        let mut stdout = io::stdout();
        stdout.write_all(frame.as_bytes())?;
        stdout.flush()
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        let mut stdout = io::stdout();
        let _ = stdout.write_all(b"\x1b[?7h\x1b[?25h\x1b[?1049l");
        let _ = stdout.flush();
    }
}

/// What is sent to show a text: each line clears what is left of the one that it is drawn over, so that nothing flickers.
fn frame(text: &str, rows: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let rows = rows.unwrap_or(lines.len());
    let mut frame = String::from("\x1b[H");
    for (index, line) in lines.iter().take(rows).enumerate() {
        if index > 0 {
            frame.push_str("\r\n");
        }
        let is_cut = index + 1 == rows && lines.len() > rows;
        if is_cut {
            frame.push_str("… more lines than the terminal has");
        } else {
            frame.push_str(line);
        }
        frame.push_str("\x1b[K");
    }
    frame.push_str("\x1b[J");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_high_as_the_terminal() {
        assert_eq!(frame("a\nb\n", Some(5)), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
        let cut = frame("a\nb\nc\nd\n", Some(2));
        assert!(cut.contains('a') && cut.contains("more lines") && !cut.contains('b'));
    }
}
