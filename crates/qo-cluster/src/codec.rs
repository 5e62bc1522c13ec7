//! Reading and writing of the binary forms in the log, in snapshots and between nodes. Numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct DecodeError(pub(crate) String);

impl From<DecodeError> for std::io::Error {
    fn from(error: DecodeError) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error.0)
    }
}

/// Fails because of what was found.
pub(crate) fn malformed<T>(what: impl Into<String>) -> Result<T, DecodeError> {
    Err(DecodeError(what.into()))
}

/// Writes values.
#[derive(Debug, Default)]
pub(crate) struct Encoder(BytesMut);

impl Encoder {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(BytesMut::with_capacity(bytes))
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.put_u8(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.put_u32(value);
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.put_u64(value);
        self
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.put_i64(value);
        self
    }

    /// A count. What is counted is in memory, so it fits.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Bytes with their length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.put_slice(bytes);
        self
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.put_slice(bytes);
        self
    }

    /// A flag, and the value if there is one.
    pub(crate) fn option<T>(
        &mut self,
        value: Option<T>,
        put: impl FnOnce(&mut Self, T),
    ) -> &mut Self {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn written(&self) -> &[u8] {
        &self.0
    }

    /// Replaces the first bytes.
    pub(crate) fn overwrite(&mut self, first: &[u8]) {
        for (old, new) in self.0.iter_mut().zip(first) {
            *old = *new;
        }
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

/// Reads values. Every read is checked against the end.
#[derive(Debug, Clone)]
pub(crate) struct Decoder(Bytes);

impl Decoder {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    fn need(&self, bytes: usize) -> Result<(), DecodeError> {
        if self.0.remaining() < bytes {
            return malformed("it ends too early");
        }
        Ok(())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        self.need(8)?;
        Ok(self.0.get_i64())
    }

    /// A count of items that take at least `each` bytes each.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        self.need(count.saturating_mul(each))?;
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.count(1)?;
        Ok(self.0.split_to(length))
    }

    pub(crate) fn text(&mut self) -> Result<String, DecodeError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.into()).map_err(|_| DecodeError("a text is not UTF-8".to_owned()))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.need(N)?;
        let mut array = [0; N];
        self.0.copy_to_slice(&mut array);
        Ok(array)
    }

    pub(crate) fn option<T>(
        &mut self,
        get: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.u8()? {
            0 => Ok(None),
            1 => get(self).map(Some),
            _ => malformed("a flag is neither 0 nor 1"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails unless everything was read.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.is_empty() {
            Ok(())
        } else {
            malformed("it is longer than its content")
        }
    }
}
