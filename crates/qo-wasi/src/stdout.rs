//! Standard output: a bounded pipe from the program to the reader of its output.
//!
//! The program waits while the pipe is full, so a run never holds more than [`PIPE_BYTES`] of output. A reader learns at the end
//! whether the program ran to its end, so that the output of a crashed program is never taken for a complete one.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::Notify;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Capacity of the pipe.
const PIPE_BYTES: usize = 256 * 1024;
/// How much a program may write at once.
const WRITE_MAX_BYTES: usize = 64 * 1024;

/// The program's end of the pipe. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Stdout {
    pipe: Arc<Pipe>,
}

/// The reader's end: the standard output of a run.
#[derive(Debug)]
pub struct Output {
    pipe: Arc<Pipe>,
}

#[derive(Debug)]
struct Pipe {
    state: Mutex<PipeState>,
    readable: Notify,
    writable: Notify,
}

#[derive(Debug)]
struct PipeState {
    buffer: BytesMut,
    /// How much the program may still write.
    left: u64,
    is_over_limit: bool,
    /// Whether the program ran to its end, once the run is over.
    end: Option<bool>,
    reader_is_gone: bool,
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a pipe for at most `limit` bytes.
pub(crate) fn pipe(limit: u64) -> (Stdout, Output) {
    let pipe = Arc::new(Pipe {
        state: Mutex::new(PipeState {
            buffer: BytesMut::new(),
            left: limit,
            is_over_limit: false,
            end: None,
            reader_is_gone: false,
        }),
        readable: Notify::new(),
        writable: Notify::new(),
    });
    let stdout = Stdout {
        pipe: Arc::clone(&pipe),
    };
    (stdout, Output { pipe })
}

impl Stdout {
    /// Whether the program wrote more than it may.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.pipe.state().is_over_limit
    }

    /// Whether the reader went away before the end.
    pub(crate) fn reader_is_gone(&self) -> bool {
        self.pipe.state().reader_is_gone
    }

    /// Ends the output.
    pub(crate) fn end(&self, is_complete: bool) {
        self.pipe.state().end.get_or_insert(is_complete);
        self.pipe.readable.notify_one();
    }
}

impl IsTerminal for Stdout {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdout {
    /// Only preview 3 uses this one.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Stdout {
    async fn ready(&mut self) {
        loop {
            let mut notified = pin!(self.pipe.writable.notified());
            // Registered before the check, so that no notification is missed, even with several waiting streams.
            notified.as_mut().enable();
            {
                let state = self.pipe.state();
                if state.buffer.len() < PIPE_BYTES || state.reader_is_gone {
                    return;
                }
            }
            notified.await;
        }
    }
}

#[async_trait]
impl OutputStream for Stdout {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut state = self.pipe.state();
        let length = bytes.len() as u64;
        if length > state.left {
            state.is_over_limit = true;
            return Err(StreamError::trap("too much output"));
        }
        if bytes.len() > WRITE_MAX_BYTES || state.buffer.len() > PIPE_BYTES {
            return Err(StreamError::trap("write without permission"));
        }
        state.left -= length;
        state.buffer.extend_from_slice(&bytes);
        drop(state);
        self.pipe.readable.notify_one();
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        let state = self.pipe.state();
        if state.reader_is_gone {
            return Err(StreamError::trap("nobody reads the output"));
        }
        if state.buffer.len() < PIPE_BYTES {
            Ok(WRITE_MAX_BYTES)
        } else {
            Ok(0)
        }
    }
}

impl Output {
    /// The next bytes; `None` at the end of the program, an error if it did not run to its end.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            {
                let mut state = self.pipe.state();
                if !state.buffer.is_empty() {
                    let bytes = state.buffer.split().freeze();
                    drop(state);
                    self.pipe.writable.notify_waiters();
                    return Some(Ok(bytes));
                }
                match state.end {
                    Some(true) => return None,
                    Some(false) => {
                        return Some(Err(io::Error::other("the program did not run to its end")));
                    }
                    None => {}
                }
            }
            self.pipe.readable.notified().await;
        }
    }

    /// The output as a stream.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        unfold(Some(self), |output| async move {
            let mut output = output?;
            let item = output.next().await?;
            // After an error the stream ends.
            let next = item.is_ok().then_some(output);
            Some((item, next))
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.pipe.state().reader_is_gone = true;
        self.pipe.writable.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_pipe_waits_for_its_reader() {
        let (mut stdout, mut output) = pipe(u64::MAX);
        let chunk = Bytes::from(vec![7; WRITE_MAX_BYTES]);
        let mut written = 0;
        while stdout.check_write().unwrap() > 0 {
            stdout.write(chunk.clone()).unwrap();
            written += chunk.len();
        }
        assert_eq!(written, PIPE_BYTES);
        let read = async {
            tokio::task::yield_now().await;
            output.next().await.unwrap().unwrap().len()
        };
        let ((), read) = tokio::join!(stdout.ready(), read);
        assert_eq!(read, written);
        assert!(stdout.check_write().unwrap() > 0);
    }

    #[tokio::test]
    async fn the_end_says_whether_the_output_is_complete() {
        let (mut stdout, mut output) = pipe(10);
        stdout.write(Bytes::from_static(b"0123456789")).unwrap();
        stdout.end(true);
        stdout.end(false);
        assert_eq!(output.next().await.unwrap().unwrap(), "0123456789");
        assert!(output.next().await.is_none());

        let (mut stdout, mut output) = pipe(10);
        assert!(stdout.write(Bytes::from_static(b"0123456789a")).is_err());
        assert!(stdout.is_over_limit());
        stdout.end(false);
        assert!(output.next().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_program_without_a_reader_is_stopped() {
        let (mut stdout, output) = pipe(u64::MAX);
        drop(output);
        stdout.ready().await;
        assert!(stdout.check_write().is_err());
        assert!(stdout.reader_is_gone());
    }
}
