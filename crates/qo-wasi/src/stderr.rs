//! Standard error: its end is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// How much of standard error is kept.
pub(crate) const TAIL_MAX_BYTES: usize = 8 * 1024;

/// How much a program may write at once.
const WRITE_MAX_BYTES: usize = 64 * 1024;

/// The end of what the program wrote. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// The bytes so far, at most [`TAIL_MAX_BYTES`].
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.iter().copied().collect()
    }

    fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_MAX_BYTES)..];
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = (tail.len() + bytes.len()).saturating_sub(TAIL_MAX_BYTES);
        tail.drain(..excess);
        tail.extend(bytes);
    }
}

impl IsTerminal for Tail {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Tail {
    /// Only preview 3 uses this one.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Tail {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Tail {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let tail = Tail::default();
        tail.push(b"start");
        assert_eq!(tail.bytes(), b"start");
        tail.push(&[b'x'; TAIL_MAX_BYTES - 2]);
        tail.push(b"end");
        let kept = tail.bytes();
        assert_eq!(kept.len(), TAIL_MAX_BYTES);
        assert!(kept.starts_with(b"x") && kept.ends_with(b"xend"));
        tail.push(&vec![b'y'; 3 * TAIL_MAX_BYTES]);
        assert_eq!(tail.bytes(), [b'y'; TAIL_MAX_BYTES]);
    }
}
