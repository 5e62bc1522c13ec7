//! Fuzz target of the broker record.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::OpId;
use qo_engine::fuzz::round_trip;
use qo_store::client::{Authorship, carries_operation};

use super::record::BrokerRecord;

/// A record that can be read has a successor, whose author is recognised in it.
pub fn broker_record(bytes: &[u8]) {
    round_trip::<BrokerRecord>(bytes);
    let Ok(record) = BrokerRecord::decode(bytes) else {
        return;
    };
    let op = OpId::from_random(1);
    let next = record.next(op);
    assert_ne!(
        next.revision, record.revision,
        "two states with the same bytes"
    );
    let written = next.encode().unwrap_or_default();
    assert_eq!(carries_operation(&written, &op), Some(Authorship::Latest));
    if record.op_id != op {
        let before = carries_operation(&written, &record.op_id);
        assert_eq!(before, Some(Authorship::BuiltUpon));
    }
}
