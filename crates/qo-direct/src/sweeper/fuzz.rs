//! Fuzz target for the sweeper's record.

use qo_core::{TaskId, Timestamp};
use qo_engine::fuzz::round_trip;

use super::cursor::{ExpiringTask, SweepPhase, SweepRecord};

/// More steps than a pass has phases.
const STEPS_MAX: usize = 8;

/// Asserts that a pass that begins from any parseable record ends.
pub(crate) fn sweep_record(bytes: &[u8], now: Timestamp, id: TaskId) {
    let Some(mut record) = round_trip::<SweepRecord>(bytes) else {
        return;
    };
    record.remember_expiry(ExpiringTask { at: now, id });
    let expired = record.take_expired(now);
    assert!(
        expired.iter().all(|expiring| expiring.at <= now),
        "a task was treated as expired too early"
    );
    let _ = (
        record.is_reread(id),
        record.is_compared(id),
        record.checked_before(),
    );
    record.advance(Some("tasks/0/x".to_owned()));
    record.skip_tidying();
    record.begin(now);
    for _ in 0..STEPS_MAX {
        if record.phase != SweepPhase::Rest {
            record.advance(None);
        }
    }
    assert_eq!(record.phase, SweepPhase::Rest);
}
