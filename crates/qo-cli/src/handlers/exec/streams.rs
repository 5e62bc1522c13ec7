//! The three streams of a command: the input is fed, the output is kept up to a bound, and of what it says about itself the
//! end is kept.
//!
//! Standard error is for people, with two exceptions: a line `::progress PERCENT [MESSAGE]` reports progress, and a line
//! `::snooze DURATION` says when to try again if the command ends with exit code 75. Neither is part of an error's text.

use std::collections::VecDeque;
use std::time::Duration;

use qo::Json;
use qo_core::limits::{DELAY_MAX_MS, ERROR_MAX_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::handlers::answer::printable;

/// A line of standard error that is longer is taken in pieces.
const LINE_MAX_BYTES: usize = 8 * 1024;

/// Writes the input, with a line break at its end, because shells and line readers want one.
///
/// A command that does not read its input closes the pipe; that is its own business.
pub(super) async fn feed(pipe: Option<impl AsyncWrite + Unpin>, input: &Json) {
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

/// What a command wrote to standard output, up to a bound.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    max_bytes: u64,
    /// Fires when there is more than the bound.
    pub(super) overflow: CancellationToken,
}

impl Output {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            bytes: Vec::new(),
            max_bytes,
            overflow: CancellationToken::new(),
        }
    }

    /// Reads to the end. What is past the bound is read and thrown away, so that the command does not hang in a full pipe
    /// before it is stopped.
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

/// What a command said on standard error.
#[derive(Debug)]
pub(super) struct Remarks {
    tail: VecDeque<u8>,
    /// After how long the command wants to be tried again.
    pub(super) snooze: Option<Duration>,
    progress: watch::Sender<Option<Progress>>,
}

/// How far a command says it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Progress {
    pub(super) percent: f64,
    pub(super) message: String,
}

impl Remarks {
    /// The remarks to be, and where the newest progress is told.
    pub(super) fn new() -> (Self, watch::Receiver<Option<Progress>>) {
        let (progress, receiver) = watch::channel(None);
        let remarks = Self {
            tail: VecDeque::new(),
            snooze: None,
            progress,
        };
        (remarks, receiver)
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
                tracing::debug!(target: "qo::exec", "{}", printable(line));
                self.tail.extend(line);
                self.tail.push_back(b'\n');
                let excess = self.tail.len().saturating_sub(ERROR_MAX_BYTES);
                self.tail.drain(..excess);
            }
        }
    }

    /// The end of what was said.
    pub(super) fn tail(&mut self) -> &[u8] {
        self.tail.make_contiguous()
    }
}

/// The next bytes of a pipe; nothing at its end, which an error is too.
async fn next<'a>(pipe: &mut (impl AsyncRead + Unpin), chunk: &'a mut [u8]) -> Option<&'a [u8]> {
    match pipe.read(chunk).await {
        Ok(0) | Err(_) => None,
        Ok(read) => chunk.get(..read),
    }
}

/// A line of standard error that is meant for the worker.
#[derive(Debug, PartialEq)]
enum Directive {
    Progress(Progress),
    Snooze(Duration),
}

impl Directive {
    /// Nothing, if the line is not meant for the worker, or is not what it should be: then people get to see it.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        if let Some(rest) = line.strip_prefix("::progress ") {
            let (percent, message) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            let percent: f64 = percent.trim_end_matches('%').parse().ok()?;
            return (0.0..=100.0).contains(&percent).then(|| {
                Self::Progress(Progress {
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
    fn lines_for_the_worker_are_understood_and_others_are_not() {
        let progress = |percent, message: &str| {
            Some(Directive::Progress(Progress {
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
    async fn the_end_of_standard_error_is_kept_without_the_lines_for_the_worker() {
        let (mut remarks, progress) = Remarks::new();
        let text = "first\n::progress 10 a\n::progress 20 b\n::snooze 7\nlast";
        remarks.read(Some(text.as_bytes())).await;
        assert_eq!(remarks.tail(), b"first\nlast\n");
        assert_eq!(remarks.snooze, Some(Duration::from_secs(7)));
        assert_eq!(progress.borrow().as_ref().unwrap().message, "b");

        let (mut remarks, _) = Remarks::new();
        let long = [b"x".repeat(100_000), b"end".to_vec()].concat();
        remarks.read(Some(long.as_slice())).await;
        assert_eq!(remarks.tail().len(), ERROR_MAX_BYTES);
        assert!(remarks.tail().ends_with(b"end\n"));
    }

    #[tokio::test]
    async fn output_is_bounded() {
        let mut output = Output::new(4);
        output.read(Some(&b"1234"[..])).await;
        assert!(!output.overflow.is_cancelled());
        assert_eq!(output.bytes, b"1234");

        let mut output = Output::new(4);
        output.read(Some(&b"12345"[..])).await;
        assert!(output.overflow.is_cancelled());
        assert!(output.bytes.len() <= 4);
    }
}
