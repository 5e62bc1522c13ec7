//! Holds an upload until its address is known.
//!
//! An object store needs the name of an object before its bytes, but the name of a blob is derived from its bytes. An upload is therefore
//! held first: up to 1 MiB in memory, larger ones in a temporary file without a name, which the operating system removes when
//! the process ends, however it ends. (Storing under a temporary key and copying inside the store would need no file, but twice the
//! requests, a copy that most stores limit to 5 GB, and a cleaner for abandoned keys.) This has further advantages: nothing reaches the
//! store before the size and the address are checked, a blob that is known is not uploaded at all, and a failed part can be sent again.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use futures_util::stream::{StreamExt, try_unfold};
use qo_core::BlobAddress;
use qo_store::client::PartSource;

use crate::api::BlobStream;
use crate::digest::Hasher;
use crate::error::BlobError;

/// Larger uploads are held in a file.
const MEMORY_MAX_BYTES: usize = 1024 * 1024;
/// The size of the chunks in which a spooled upload is streamed.
const CHUNK_BYTES: u64 = 256 * 1024;

/// An upload that was received completely.
#[derive(Debug, Clone)]
pub struct Spool {
    address: BlobAddress,
    size: u64,
    bytes: SpooledBytes,
}

#[derive(Debug, Clone)]
enum SpooledBytes {
    Memory(Bytes),
    File(Arc<Mutex<File>>),
}

impl Spool {
    /// Receives an upload of at most `max_bytes`. If `expected` is given, the bytes must have that address.
    pub async fn receive(
        mut body: BlobStream,
        max_bytes: u64,
        expected: Option<BlobAddress>,
    ) -> Result<Self, BlobError> {
        let mut hasher = Hasher::new();
        let mut size = 0_u64;
        let mut buffer = BytesMut::new();
        let mut file: Option<Arc<Mutex<File>>> = None;
        while let Some(chunk) = body.try_next().await? {
            size += chunk.len() as u64;
            if size > max_bytes {
                return Err(BlobError::TooLarge { max_bytes });
            }
            hasher.update(&chunk);
            buffer.extend_from_slice(&chunk);
            if buffer.len() > MEMORY_MAX_BYTES {
                let full = buffer.split().freeze();
                file = Some(append(file.take(), full).await.map_err(failed)?);
            }
        }
        let address = hasher.finish();
        if let Some(expected) = expected.filter(|expected| *expected != address) {
            return Err(BlobError::Mismatch {
                expected,
                actual: address,
            });
        }
        let bytes = match file {
            None => SpooledBytes::Memory(buffer.freeze()),
            file @ Some(_) => {
                SpooledBytes::File(append(file, buffer.freeze()).await.map_err(failed)?)
            }
        };
        Ok(Self {
            address,
            size,
            bytes,
        })
    }

    /// The address of the bytes.
    pub fn address(&self) -> BlobAddress {
        self.address
    }

    /// The number of bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes as a stream, from the beginning.
    pub fn stream(&self) -> BlobStream {
        let start = (self.clone(), 0);
        try_unfold(start, |(spool, at)| async move {
            let end = spool.size.min(at + CHUNK_BYTES);
            if at == end {
                return Ok(None);
            }
            let chunk = spool.part(at..end).await.map_err(failed)?;
            Ok(Some((chunk, (spool, end))))
        })
        .boxed()
    }
}

fn failed(error: io::Error) -> BlobError {
    let detail = error.to_string();
    drop(error);
    BlobError::Spool { detail }
}

/// Writes bytes to the end of a file, which is created if there is none.
async fn append(file: Option<Arc<Mutex<File>>>, bytes: Bytes) -> io::Result<Arc<Mutex<File>>> {
    let write = move || {
        let file = match file {
            Some(file) => file,
            None => Arc::new(Mutex::new(tempfile::tempfile()?)),
        };
        {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::End(0))?;
            file.write_all(&bytes)?;
        }
        Ok(file)
    };
    tokio::task::spawn_blocking(write)
        .await
        .map_err(io::Error::other)?
}

#[async_trait]
impl PartSource for Spool {
    fn size(&self) -> u64 {
        self.size
    }

    async fn part(&self, range: Range<u64>) -> io::Result<Bytes> {
        let file = match &self.bytes {
            SpooledBytes::Memory(bytes) => return bytes.part(range).await,
            SpooledBytes::File(file) => Arc::clone(file),
        };
        let read = move || {
            let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(range.start))?;
            file.read_exact(&mut bytes)?;
            Ok(Bytes::from(bytes))
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::address_of;

    fn chunks(bytes: &[u8], size: usize) -> BlobStream {
        let chunks: Vec<_> = bytes
            .chunks(size)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        futures_util::stream::iter(chunks).boxed()
    }

    #[tokio::test]
    async fn large_and_small_uploads_are_held_and_read_again() {
        for size in [
            0,
            1,
            MEMORY_MAX_BYTES,
            MEMORY_MAX_BYTES + 1,
            3 * MEMORY_MAX_BYTES + 17,
        ] {
            let bytes: Vec<u8> = (0..size)
                .map(|index| u8::try_from(index % 251).unwrap())
                .collect();
            let spool = Spool::receive(chunks(&bytes, 100_000), size as u64, None)
                .await
                .unwrap();
            assert_eq!(spool.address(), address_of(&bytes));
            assert_eq!(
                matches!(spool.bytes, SpooledBytes::File(_)),
                size > MEMORY_MAX_BYTES
            );
            for _ in 0..2 {
                let read: Vec<Bytes> = spool.stream().try_collect().await.unwrap();
                assert!(read.concat() == bytes);
            }
            let middle = (size as u64 / 3)..(size as u64 / 2);
            let part = spool.part(middle).await.unwrap();
            assert!(part == bytes[size / 3..size / 2]);
        }
    }

    #[tokio::test]
    async fn an_upload_that_is_too_large_broken_or_another_is_refused() {
        let error = Spool::receive(chunks(&[1; 11], 3), 10, None)
            .await
            .unwrap_err();
        assert_eq!(error, BlobError::TooLarge { max_bytes: 10 });
        let expected = address_of(b"a");
        let error = Spool::receive(chunks(b"b", 1), 10, Some(expected))
            .await
            .unwrap_err();
        assert_eq!(
            error,
            BlobError::Mismatch {
                expected,
                actual: address_of(b"b")
            }
        );
        let broken = BlobError::Upload {
            detail: "gone".to_owned(),
        };
        let body = chunks(b"abc", 1).chain(futures_util::stream::iter([Err(broken.clone())]));
        assert_eq!(
            Spool::receive(body.boxed(), 10, None).await.unwrap_err(),
            broken
        );
    }
}
