//! Standard input: a stream of bytes.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use futures_util::{Stream, stream};
use tokio::sync::Mutex;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdinStream};
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};

/// The input of a run.
pub struct Input(BoxStream<'static, io::Result<Bytes>>);

impl Input {
    /// No input.
    pub fn empty() -> Self {
        Self(stream::empty().boxed())
    }

    /// These bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(stream::once(async move { Ok(bytes) }).boxed())
    }

    /// A stream. An error in it ends the run with [`RunError::Input`](crate::RunError::Input).
    pub fn stream(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self(stream.boxed())
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}

/// The program's view of its input. Clones share the position.
#[derive(Clone)]
pub(crate) struct Stdin {
    state: Arc<Mutex<StdinState>>,
    failure: Arc<OnceLock<String>>,
}

struct StdinState {
    source: BoxStream<'static, io::Result<Bytes>>,
    buffer: Bytes,
    has_ended: bool,
}

impl Stdin {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            state: Arc::new(Mutex::new(StdinState {
                source: input.0,
                buffer: Bytes::new(),
                has_ended: false,
            })),
            failure: Arc::default(),
        }
    }

    /// Why the input could not be read, if so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

impl IsTerminal for Stdin {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Stdin {
    /// Only preview 3 uses this one.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncRead + Send + Sync> {
        Box::new(tokio::io::empty())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Stdin {
    async fn ready(&mut self) {
        let mut state = self.state.lock().await;
        while state.buffer.is_empty() && !state.has_ended {
            match state.source.next().await {
                Some(Ok(bytes)) => state.buffer = bytes,
                Some(Err(error)) => {
                    state.has_ended = true;
                    // The first failure is kept.
                    let _ = self.failure.set(error.to_string());
                }
                None => state.has_ended = true,
            }
        }
    }
}

#[async_trait]
impl InputStream for Stdin {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if self.failure.get().is_some() {
            return Err(StreamError::trap("cannot read the input"));
        }
        // Another handle waits for the next bytes, so there are none now.
        let Ok(mut state) = self.state.try_lock() else {
            return Ok(Bytes::new());
        };
        if state.buffer.is_empty() && state.has_ended {
            return Err(StreamError::Closed);
        }
        let length = size.min(state.buffer.len());
        Ok(state.buffer.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn handles_share_the_position() {
        let chunks = ["abc", "", "d"].map(|text| Ok(Bytes::from(text)));
        let stdin = Stdin::new(Input::stream(stream::iter(chunks)));
        let (mut one, mut two) = (stdin.clone(), stdin.clone());
        assert_eq!(one.read(8).unwrap(), "");
        one.ready().await;
        assert_eq!(one.read(2).unwrap(), "ab");
        assert_eq!(two.read(8).unwrap(), "c");
        two.ready().await;
        assert_eq!(two.read(8).unwrap(), "d");
        two.ready().await;
        assert!(matches!(one.read(8), Err(StreamError::Closed)));
        assert_eq!(stdin.failure(), None);
    }

    #[tokio::test]
    async fn a_failure_is_kept() {
        let failing = stream::iter([Err(io::Error::other("damaged"))]);
        let mut stdin = Stdin::new(Input::stream(failing));
        stdin.ready().await;
        assert!(matches!(stdin.read(1), Err(StreamError::Trap(_))));
        assert_eq!(stdin.failure(), Some("damaged"));
    }
}
