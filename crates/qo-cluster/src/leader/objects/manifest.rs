//! What is known about an object, and the keys of its rows.

use bytes::Bytes;
use chrono::DateTime;
use object_store::ObjectMeta;
use object_store::path::Path;
use qo_core::Timestamp;

use crate::codec::{DecodeError, Decoder, Encoder};

pub(super) const OBJECT: u8 = b'o';
pub(super) const PART: u8 = b'x';
pub(super) const UPLOAD: u8 = b'u';

/// What is known about an object.
pub(super) struct Manifest {
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    pub(super) parts: u32,
    pub(super) id: [u8; 16],
}

impl Manifest {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Encoder::default();
        out.u64(self.size)
            .i64(self.modified.as_millis())
            .u32(self.parts)
            .raw(&self.id);
        out.finish()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(bytes);
        let manifest = Self {
            size: input.u64()?,
            modified: Timestamp::from_millis(input.i64()?),
            parts: input.u32()?,
            id: input.array()?,
        };
        input.end()?;
        Ok(manifest)
    }

    pub(super) fn tag(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.id))
    }

    pub(super) fn part_keys(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.parts).map(|part| part_key(&self.id, part))
    }

    pub(super) fn meta(&self, location: Path) -> ObjectMeta {
        let modified = DateTime::from_timestamp_millis(self.modified.as_millis());
        ObjectMeta {
            location,
            last_modified: modified.unwrap_or_default(),
            size: self.size,
            e_tag: Some(self.tag()),
            version: None,
        }
    }
}

pub(super) fn object_key(path: &str) -> Bytes {
    let mut key = Vec::with_capacity(path.len() + 1);
    key.push(OBJECT);
    key.extend_from_slice(path.as_bytes());
    Bytes::from(key)
}

pub(super) fn part_key(id: &[u8; 16], part: u32) -> Bytes {
    let mut key = Vec::with_capacity(21);
    key.push(PART);
    key.extend_from_slice(id);
    key.extend_from_slice(&part.to_be_bytes());
    Bytes::from(key)
}

pub(super) fn upload_key(id: &[u8; 16]) -> Bytes {
    let mut key = Vec::with_capacity(17);
    key.push(UPLOAD);
    key.extend_from_slice(id);
    Bytes::from(key)
}
