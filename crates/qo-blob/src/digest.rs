//! Addresses of bytes, and streams that verify them.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream::try_unfold;
use qo_core::{BlobAddress, Sha256};

use crate::api::BlobStream;
use crate::error::BlobError;

/// The address of bytes.
pub fn address_of(bytes: &[u8]) -> BlobAddress {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finish()
}

/// Computes an address piece by piece.
pub(crate) struct Hasher(ring::digest::Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(ring::digest::Context::new(&ring::digest::SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> BlobAddress {
        let mut array = [0; 32];
        array.copy_from_slice(self.0.finish().as_ref());
        Sha256::from_bytes(array).into()
    }
}

/// The same stream, with [`BlobError::Damaged`] in the place of its last chunk unless its bytes have this address. Each chunk is held back
/// until the next one has come, so that a reader of a damaged blob never receives all of it.
pub fn verified(address: BlobAddress, body: BlobStream) -> BlobStream {
    let start = (body, None, Some(Hasher::new()));
    try_unfold(start, move |(mut body, mut held, mut hasher)| async move {
        while hasher.is_some() {
            let next: Option<Bytes> = body.try_next().await?;
            if let (Some(chunk), Some(hasher)) = (&next, &mut hasher) {
                hasher.update(chunk);
            } else {
                let actual = hasher.take().map(Hasher::finish);
                if let Some(actual) = actual.filter(|actual| *actual != address) {
                    let detail = format!("its bytes have the address {actual}");
                    return Err(BlobError::Damaged { address, detail });
                }
            }
            if let Some(chunk) = std::mem::replace(&mut held, next) {
                return Ok(Some((chunk, (body, held, hasher))));
            }
        }
        Ok(held.take().map(|chunk| (chunk, (body, held, hasher))))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(chunks: &[&'static [u8]]) -> BlobStream {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok(Bytes::from_static(chunk)))
            .collect();
        futures_util::stream::iter(chunks).boxed()
    }

    #[tokio::test]
    async fn a_stream_of_other_bytes_ends_with_an_error() {
        let address = address_of(b"hello");
        let whole: Vec<_> = verified(address, stream(&[b"he", b"llo"])).collect().await;
        assert!(whole.len() == 2 && whole.iter().all(Result::is_ok));
        let others: [&[&'static [u8]]; 4] = [&[b"he", b"llO"], &[b"hell"], &[], &[b"hello", b"!"]];
        for bytes in others {
            let read: Vec<_> = verified(address, stream(bytes)).collect().await;
            assert!(
                matches!(read.last(), Some(Err(BlobError::Damaged { .. }))),
                "{read:?}"
            );
        }
    }
}
