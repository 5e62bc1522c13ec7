//! The terminal: its size and full-screen drawing.

use std::io::{self, Write};

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Width.
    pub columns: usize,
    /// Height.
    pub rows: usize,
}

/// The size of the terminal at standard output, if it reports one.
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

/// The alternate screen of the terminal. Dropping it restores the previous contents.
#[derive(Debug)]
pub struct Canvas(());

impl Canvas {
    /// Switches to the alternate screen, hides the cursor and disables line wrapping.
    pub fn open() -> io::Result<Self> {
        let mut stdout = io::stdout();
        stdout.write_all(b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J")?;
        stdout.flush()?;
        Ok(Self(()))
    }

    /// Draws a text from the first line, up to the height of the terminal.
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

/// The control sequence that draws a text. Each line clears the rest of the line below it, which avoids flicker.
fn frame(text: &str, rows: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let rows = rows.unwrap_or(lines.len());
    let mut frame = String::from("\x1b[H");
    for (index, line) in lines.iter().take(rows).enumerate() {
        if index > 0 {
            frame.push_str("\r\n");
        }
        let is_truncated = index + 1 == rows && lines.len() > rows;
        if is_truncated {
            frame.push_str("… more lines do not fit");
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
    fn a_frame_fits_the_height_of_the_terminal() {
        assert_eq!(frame("a\nb\n", Some(5)), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
        let cut = frame("a\nb\nc\nd\n", Some(2));
        assert!(cut.contains('a') && cut.contains("more lines") && !cut.contains('b'));
    }
}
