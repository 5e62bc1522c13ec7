//! The three streams of a command: input to write, output to keep up to a limit, and standard error, whose end is kept.
//!
//! Standard error is for humans, and its end is the log of the attempt, with two exceptions: a line `::progress PERCENT [MESSAGE]` reports progress, and a line
//! `::snooze DURATION` sets the delay if the command exits with code 75. Neither becomes part of a log or an error text.

use std::collections::VecDeque;
use std::time::Duration;

use qo::{Context, Json};
use qo_core::limits::{DELAY_MAX_MS, ERROR_MAX_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::handlers::output::printable;

/// Longer lines of standard error are split.
const LINE_MAX_BYTES: usize = 8 * 1024;

/// Writes the input, followed by a line break for line-based readers.
///
/// A command may close the pipe without reading its input.
pub(super) async fn write_input(pipe: Option<impl AsyncWrite + Unpin>, input: &Json) {
    let Some(mut pipe) = pipe else { return };
    let written = async {
        pipe.write_all(input.as_str().as_bytes()).await?;
        pipe.write_all(b"\n").await?;
        pipe.shutdown().await
    };
    if let Err(error) = written.await {
        tracing::debug!(%error, "the command did not read all of its input");
    }
}

/// Reads standard output up to a limit.
#[derive(Debug)]
pub(super) struct StdoutReader {
    pub(super) bytes: Vec<u8>,
    max_bytes: u64,
    /// Cancelled when the limit is exceeded.
    pub(super) overflow: CancellationToken,
}

impl StdoutReader {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            bytes: Vec::new(),
            max_bytes,
            overflow: CancellationToken::new(),
        }
    }

    /// Reads to the end. Bytes beyond the limit are discarded, so that the command does not block on a full pipe before it is
    /// stopped.
    pub(super) async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; 16 * 1024];
        while let Some(read) = next(&mut pipe, &mut chunk).await {
            let total = self.bytes.len() as u64 + read.len() as u64;
            if total > self.max_bytes {
                self.overflow.cancel();
            } else {
                self.bytes.extend_from_slice(read);
            }
        }
    }
}

/// Reads standard error and keeps its end.
#[derive(Debug)]
pub(super) struct StderrReader {
    tail: VecDeque<u8>,
    /// The delay requested by `::snooze`.
    pub(super) snooze: Option<Duration>,
    progress: watch::Sender<Option<ReportedProgress>>,
    /// Whose log gets the lines.
    context: Option<Context>,
}

/// Progress reported by a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportedProgress {
    pub(super) percent: f64,
    pub(super) message: String,
}

impl StderrReader {
    /// Creates the reader and the channel with the newest progress.
    pub(super) fn new(
        context: Option<Context>,
    ) -> (Self, watch::Receiver<Option<ReportedProgress>>) {
        let (progress, receiver) = watch::channel(None);
        let reader = Self {
            tail: VecDeque::new(),
            snooze: None,
            progress,
            context,
        };
        (reader, receiver)
    }

    /// Reads to the end, line by line.
    pub(super) async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = vec![0; 4 * 1024];
        let mut line = Vec::new();
        while let Some(read) = next(&mut pipe, &mut chunk).await {
            for byte in read {
                if *byte == b'\n' || line.len() >= LINE_MAX_BYTES {
                    self.line(&line);
                    line.clear();
                }
                if *byte != b'\n' {
                    line.push(*byte);
                }
            }
        }
        if !line.is_empty() {
            self.line(&line);
        }
    }

    fn line(&mut self, line: &[u8]) {
        match Directive::parse(line) {
            Some(Directive::Progress(progress)) => {
                self.progress.send_replace(Some(progress));
            }
            Some(Directive::Snooze(duration)) => self.snooze = Some(duration),
            None => {
                let shown = printable(line);
                tracing::debug!(target: "qo::exec", "{shown}");
                if let Some(context) = &self.context {
                    context.log(shown);
                }
                self.tail.extend(line);
                self.tail.push_back(b'\n');
                let excess = self.tail.len().saturating_sub(ERROR_MAX_BYTES);
                self.tail.drain(..excess);
            }
        }
    }

    /// The end of standard error.
    pub(super) fn tail(&mut self) -> &[u8] {
        self.tail.make_contiguous()
    }
}

/// The next bytes of a pipe; `None` at its end or after an error.
async fn next<'a>(pipe: &mut (impl AsyncRead + Unpin), chunk: &'a mut [u8]) -> Option<&'a [u8]> {
    match pipe.read(chunk).await {
        Ok(0) | Err(_) => None,
        Ok(read) => chunk.get(..read),
    }
}

/// A line of standard error addressed to the worker.
#[derive(Debug, PartialEq)]
enum Directive {
    Progress(ReportedProgress),
    Snooze(Duration),
}

impl Directive {
    /// Parses a line; `None` if it is not a valid directive. It is then treated as ordinary output.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        if let Some(rest) = line.strip_prefix("::progress ") {
            let (percent, message) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            let percent: f64 = percent.trim_end_matches('%').parse().ok()?;
            return (0.0..=100.0).contains(&percent).then(|| {
                Self::Progress(ReportedProgress {
                    percent,
                    message: message.trim().to_owned(),
                })
            });
        }
        let duration = line.strip_prefix("::snooze ")?.trim();
        let duration = match duration.parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => humantime::parse_duration(duration).ok()?,
        };
        Some(Self::Snooze(
            duration.min(Duration::from_millis(DELAY_MAX_MS)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_parsed_and_other_lines_are_not() {
        let progress = |percent, message: &str| {
            Some(Directive::Progress(ReportedProgress {
                percent,
                message: message.into(),
            }))
        };
        let parse = |line: &str| Directive::parse(line.as_bytes());
        assert_eq!(parse("::progress 40 half way"), progress(40.0, "half way"));
        assert_eq!(parse("::progress 99.5%"), progress(99.5, ""));
        let seconds = |seconds| Some(Directive::Snooze(Duration::from_secs(seconds)));
        assert_eq!(parse("::snooze 30"), seconds(30));
        assert_eq!(parse("::snooze 5m"), seconds(300));
        for other in [
            "::progress",
            "::progress much",
            "::progress 101",
            "::progress NaN",
            "::snooze",
            "::snooze soon",
            "progress 40",
            " ::progress 40",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn the_end_of_standard_error_is_kept_without_directives() {
        let (mut reader, progress) = StderrReader::new(None);
        let text = "first\n::progress 10 a\n::progress 20 b\n::snooze 7\nlast";
        reader.read(Some(text.as_bytes())).await;
        assert_eq!(reader.tail(), b"first\nlast\n");
        assert_eq!(reader.snooze, Some(Duration::from_secs(7)));
        assert_eq!(progress.borrow().as_ref().unwrap().message, "b");

        let (mut reader, _) = StderrReader::new(None);
        let long = [b"x".repeat(100_000), b"end".to_vec()].concat();
        reader.read(Some(long.as_slice())).await;
        assert_eq!(reader.tail().len(), ERROR_MAX_BYTES);
        assert!(reader.tail().ends_with(b"end\n"));
    }

    #[tokio::test]
    async fn output_is_bounded() {
        let mut output = StdoutReader::new(4);
        output.read(Some(&b"1234"[..])).await;
        assert!(!output.overflow.is_cancelled());
        assert_eq!(output.bytes, b"1234");

        let mut output = StdoutReader::new(4);
        output.read(Some(&b"12345"[..])).await;
        assert!(output.overflow.is_cancelled());
        assert!(output.bytes.len() <= 4);
    }
}
