//! The fields that all records changed by compare-and-swap share: a revision, and the operations that changed them last.
//!
//! With the operations, the store client finds out whether a write of unknown result was applied.

use qo_core::OpId;
use serde::{Deserialize, Serialize};

/// How many operations a record keeps.
const RECENT_OPS_MAX: usize = 32;

/// The first fields of a record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordHead {
    revision: u64,
    #[serde(default)]
    op_id: Option<OpId>,
    #[serde(default)]
    recent_ops: Vec<OpId>,
}

impl RecordHead {
    /// Begins a new revision, which this operation writes. An operation may try several times.
    pub(super) fn set_operation(&mut self, op: OpId) {
        self.revision = self.revision.saturating_add(1);
        if self.op_id != Some(op) {
            self.recent_ops.extend(self.op_id.replace(op));
        }
        let excess = self.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
        self.recent_ops.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operations_are_kept_once() {
        let mut head = RecordHead::default();
        for number in 0..40 {
            for _ in 0..2 {
                head.set_operation(OpId::from_random(number));
            }
        }
        assert_eq!(head.revision, 80);
        assert_eq!(head.op_id, Some(OpId::from_random(39)));
        let expected: Vec<_> = (7..39).map(OpId::from_random).collect();
        assert_eq!(head.recent_ops, expected);
    }
}
