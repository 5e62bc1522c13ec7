//! The record of the sweeper, from any bytes.

use qo_core::{TaskId, Timestamp};
use qo_engine::fuzz::round_trip;

use super::cursor::{Expiring, Phase, SweepRecord};

/// The phases of a pass, and one more for luck.
const STEPS_MAX: usize = 8;

/// However the record came to be, a pass that begins from it comes to its end.
pub(crate) fn sweep_record(bytes: &[u8], now: Timestamp, id: TaskId) {
    let Some(mut record) = round_trip::<SweepRecord>(bytes) else {
        return;
    };
    record.expect(Expiring { at: now, id });
    let expired = record.take_expired(now);
    assert!(
        expired.iter().all(|expiring| expiring.at <= now),
        "a task was taken for expired before its time"
    );
    let _ = (
        record.is_reread(id),
        record.is_compared(id),
        record.judged_before(),
    );
    record.advance(Some("tasks/0/x".to_owned()));
    record.skip_tidying();
    record.begin(now);
    for _ in 0..STEPS_MAX {
        if record.phase != Phase::Rest {
            record.advance(None);
        }
    }
    assert_eq!(record.phase, Phase::Rest);
}
