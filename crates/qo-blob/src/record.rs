//! The record of a blob in the store.

use qo_core::extra::Extra;
use qo_core::limits::COUNT_MAX;
use qo_core::{BlobAddress, OpId, Timestamp};
use serde::{Deserialize, Serialize};

/// The number of earlier operations that a record keeps, so that a write whose response was lost is recognised after later ones.
const RECENT_OPS_MAX: usize = 16;

/// Whether the bytes of a generation are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BlobState {
    /// They are stored.
    Stored,
    /// They are being deleted or gone, and never come back. A later upload has the next generation.
    Collected,
}

/// The record of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlobRecord {
    pub(crate) address: BlobAddress,
    pub(crate) size: u64,
    pub(crate) state: BlobState,
    /// Counts from 1 how often the blob was stored after it was collected.
    pub(crate) generation: u64,
    /// When the bytes of this generation were stored.
    pub(crate) stored_at: Timestamp,
    /// When somebody last uploaded the blob or was about to submit a task that refers to it; when it was collected, if it was.
    pub(crate) touched_at: Timestamp,
    /// The number of changes. It makes the bytes of any two states differ.
    pub(crate) revision: u64,
    pub(crate) op_id: OpId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) recent_ops: Vec<OpId>,
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

/// The bytes of a blob, as they are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredBytes {
    pub(crate) size: u64,
    pub(crate) generation: u64,
}

impl BlobRecord {
    /// The first record of a blob.
    pub(crate) fn new(address: BlobAddress, bytes: StoredBytes, now: Timestamp, op: OpId) -> Self {
        Self {
            address,
            size: bytes.size,
            state: BlobState::Stored,
            generation: bytes.generation,
            stored_at: now,
            touched_at: now,
            revision: 1,
            op_id: op,
            recent_ops: Vec::new(),
            extra: Extra::NONE,
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.state == BlobState::Stored
    }

    /// The next state of the record, written by `op`.
    fn changed(&self, now: Timestamp, op: OpId) -> Self {
        let mut next = self.clone();
        next.revision += 1;
        next.touched_at = next.touched_at.max(now);
        next.recent_ops.push(self.op_id);
        let excess = next.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
        next.recent_ops.drain(..excess);
        next.op_id = op;
        next
    }

    pub(crate) fn touched(&self, now: Timestamp, op: OpId) -> Self {
        self.changed(now, op)
    }

    pub(crate) fn collected(&self, now: Timestamp, op: OpId) -> Self {
        Self {
            state: BlobState::Collected,
            ..self.changed(now, op)
        }
    }

    /// The record after the bytes were stored as a later generation.
    pub(crate) fn stored_again(&self, bytes: StoredBytes, now: Timestamp, op: OpId) -> Self {
        Self {
            state: BlobState::Stored,
            size: bytes.size,
            generation: bytes.generation,
            stored_at: now,
            ..self.changed(now, op)
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads the record of `address`.
    pub(crate) fn decode(bytes: &[u8], address: BlobAddress) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if record.address != address {
            return Err(format!("it is the record of {}", record.address));
        }
        // So that counting on never overflows.
        if record.generation >= COUNT_MAX || record.revision >= COUNT_MAX {
            return Err("a counter is out of range".to_owned());
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::address_of;

    fn bytes(generation: u64) -> StoredBytes {
        StoredBytes {
            size: 1,
            generation,
        }
    }

    #[test]
    fn records_round_trip_and_keep_fields_of_later_versions() {
        let address = address_of(b"x");
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut record = BlobRecord::new(address, bytes(1), now, OpId::from_random(0));
        for number in 1..40 {
            record = record.touched(now.plus_millis(number), OpId::from_random(number.into()));
        }
        assert_eq!(record.recent_ops.len(), RECENT_OPS_MAX);
        assert_eq!(record.revision, 40);
        assert_eq!(record.touched_at, now.plus_millis(39));
        let text = String::from_utf8(record.encode().unwrap()).unwrap();
        assert_eq!(BlobRecord::decode(text.as_bytes(), address), Ok(record));
        let later = text.replacen('{', r#"{"colour":"red","#, 1);
        let read = BlobRecord::decode(later.as_bytes(), address).unwrap();
        assert!(
            String::from_utf8(read.encode().unwrap())
                .unwrap()
                .contains(r#""colour":"red""#)
        );
    }

    #[test]
    fn other_bytes_are_no_record() {
        let address = address_of(b"x");
        let now = Timestamp::from_millis(1_700_000_000_000);
        let record = BlobRecord::new(address, bytes(COUNT_MAX), now, OpId::from_random(0));
        let other = BlobRecord::new(address_of(b"y"), bytes(1), now, OpId::from_random(0));
        for bytes in [
            b"".to_vec(),
            b"{}".to_vec(),
            record.encode().unwrap(),
            other.encode().unwrap(),
        ] {
            assert!(BlobRecord::decode(&bytes, address).is_err());
        }
    }
}
