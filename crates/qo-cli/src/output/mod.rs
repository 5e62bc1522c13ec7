//! Standard output and standard error.
//!
//! Results go to standard output; notes, questions, progress and errors go to standard error. So `qo list | wc -l` counts tasks.

pub mod keyboard;
pub mod pretty;
pub mod progress;
pub mod sealed;
pub mod style;
pub mod table;
pub mod terminal;
pub mod text;
pub mod time;
pub mod watch;

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use self::style::{ColourChoice, Paint};
use self::table::Table;
use crate::environment::Environment;
use crate::failure::Failure;

/// The three standard streams.
pub struct Io {
    /// Standard input.
    pub stdin: Box<dyn BufRead + Send>,
    /// Standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Standard error.
    pub stderr: Box<dyn Write + Send>,
    /// Which of them are terminals.
    pub terminals: Terminals,
}

/// Which of the standard streams are terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terminals {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

impl Io {
    /// The streams of this process.
    pub fn of_process() -> Self {
        Self {
            stdin: Box::new(io::BufReader::new(io::stdin())),
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            terminals: Terminals {
                stdin: io::stdin().is_terminal(),
                stdout: io::stdout().is_terminal(),
                stderr: io::stderr().is_terminal(),
            },
        }
    }
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io")
            .field("terminals", &self.terminals)
            .finish_non_exhaustive()
    }
}

/// The streams and the output settings.
#[derive(Debug)]
pub struct Screen {
    io: Io,
    /// Colours standard output.
    pub paint: Paint,
    /// Colours standard error.
    pub paint_notes: Paint,
    /// Whether results are printed as JSON.
    pub json: bool,
    /// Whether notes are suppressed.
    pub quiet: bool,
    /// The width from `COLUMNS`, used if the terminal does not report one.
    columns: Option<usize>,
}

impl Screen {
    /// Creates a screen from the streams, the flags and the environment.
    pub fn new(
        io: Io,
        colour: ColourChoice,
        json: bool,
        quiet: bool,
        environment: &Environment,
    ) -> Self {
        let paint = |is_terminal| Paint {
            on: !json && colour.decide(environment, is_terminal),
        };
        Self {
            paint: paint(io.terminals.stdout),
            paint_notes: paint(io.terminals.stderr),
            io,
            json,
            quiet,
            columns: environment
                .var("COLUMNS")
                .and_then(|text| text.parse().ok())
                .filter(|columns| *columns >= 20),
        }
    }

    /// Which streams are terminals.
    pub fn terminals(&self) -> Terminals {
        self.io.terminals
    }

    /// The width of the terminal; `None` if standard output is not a terminal, so results are not truncated.
    pub fn width(&self) -> Option<usize> {
        if !self.io.terminals.stdout {
            return None;
        }
        terminal::size()
            .map(|size| size.columns)
            .or(self.columns)
            .or(Some(80))
    }

    /// Prints a line of the result.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.io.stdout, "{text}")
    }

    /// Prints a result unchanged.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.io.stdout.write_all(text.as_bytes())?;
        self.io.stdout.flush()
    }

    /// Prints bytes unchanged.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.stdout.write_all(bytes)
    }

    /// Prints a result as one line of JSON.
    pub fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
        let text = serde_json::to_string(value)?;
        Ok(writeln!(self.io.stdout, "{text}")?)
    }

    /// Prints a result as a table.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        let text = table.render(self.paint, self.width());
        self.write(&text)
    }

    /// Prints a note for humans on standard error. A closed stream is ignored.
    pub fn note(&mut self, text: impl Display) {
        if !self.quiet && !self.json {
            let _ = writeln!(self.io.stderr, "{text}");
        }
    }

    /// Prints a note for programs on standard error, as one line of JSON.
    pub fn json_note(&mut self, value: &serde_json::Value) {
        if !self.quiet {
            let _ = writeln!(self.io.stderr, "{value}");
        }
    }

    /// Prints a warning.
    pub fn warn(&mut self, text: impl Display) {
        if self.json {
            return self.json_note(&serde_json::json!({ "warning": text.to_string() }));
        }
        let word = self.paint_notes.paint(style::YELLOW, "warning:");
        self.note(format_args!("{word} {text}"));
    }

    /// Prints text on standard error, even if notes are suppressed.
    pub fn error_text(&mut self, text: impl Display) {
        let _ = writeln!(self.io.stderr, "{text}");
    }

    /// Prints a failure, even if notes are suppressed.
    pub fn failure(&mut self, failure: &Failure) {
        let text = if self.json {
            failure.to_json().to_string()
        } else {
            let word = self.paint_notes.paint(style::RED, "error:");
            let message = text::clean_lines(&failure.message);
            match &failure.hint {
                None => format!("{word} {message}"),
                Some(hint) => {
                    let hint_word = self.paint_notes.paint(style::CYAN, " hint:");
                    format!("{word} {message}\n{hint_word} {}", text::clean_lines(hint))
                }
            }
        };
        let _ = writeln!(self.io.stderr, "{text}");
    }

    /// Asks a yes/no question. Call it only if [`can_ask`](Self::can_ask) is true.
    pub fn confirm(&mut self, question: &str) -> io::Result<bool> {
        write!(self.io.stderr, "{question} [y/N] ")?;
        self.io.stderr.flush()?;
        let mut answer = String::new();
        io::Read::take(&mut self.io.stdin, 64).read_line(&mut answer)?;
        let answer = answer.trim();
        Ok(answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes"))
    }

    /// Whether a user can answer questions.
    pub fn can_ask(&self) -> bool {
        self.io.terminals.stdin && self.io.terminals.stderr && !self.json
    }

    /// Standard input.
    pub fn stdin(&mut self) -> &mut (dyn BufRead + Send) {
        &mut *self.io.stdin
    }

    /// Takes standard input, to read it from another thread.
    pub fn take_stdin(&mut self) -> Box<dyn BufRead + Send> {
        std::mem::replace(&mut self.io.stdin, Box::new(io::empty()))
    }

    /// Flushes standard output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.io.stdout.flush()
    }
}
