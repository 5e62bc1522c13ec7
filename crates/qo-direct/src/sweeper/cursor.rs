//! Where the sweeper is: one object, changed by compare-and-swap, so that any number of processes sweep as one and a new one
//! goes on where a dead one stopped.
//!
//! The record is written after the work that it tells of. A crash between the two repeats at most one step, and every part
//! of a step may be repeated. Somebody who loses the record to another has done work twice, which does no harm either.

use bytes::Bytes;
use qo_core::keys::SWEEP_KEY;
use qo_core::{OpId, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::Tag;
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use super::super::DirectEngine;

/// How many operations the record remembers.
const RECENT_OPS_MAX: usize = 32;
/// How long whoever works on a pass may take for a step, and the pause after it, before another takes over.
const HOLD_MS: u64 = 90_000;
/// How much later than the last owner the others begin a pass, so that it mostly stays with one process, which remembers
/// what it has seen.
pub(super) const STAND_BACK_MS: u64 = 30_000;
/// How often the indexes and the payloads are walked.
const TIDY_INTERVAL_MS: u64 = 3_600_000;
/// Of how many waiting tasks it is remembered when they expire: those that do so first.
const EXPIRING_MAX: usize = 500;
/// A change that was made, by the store's clock, so long before a pass began was seen by that pass.
const SEEN_AFTER_MS: u64 = 600_000;
/// How many old records, and how many entries, are read in a pass that tidies.
const READS_MAX: u64 = 2_000;
/// In how many parts the old records are read: one in each pass that tidies, so that all of them are read once a day.
const PARTS_MIN: u64 = 24;

/// What a pass is looking at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Nothing: the last pass is complete.
    #[default]
    Rest,
    Tasks,
    Ready,
    Later,
    Leases,
    Data,
}

/// A pending task that will not be worth starting from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Expiring {
    pub(super) at: Timestamp,
    pub(super) id: TaskId,
}

/// What is stored of the sweeper.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SweepRecord {
    revision: u64,
    op_id: Option<OpId>,
    recent_ops: Vec<OpId>,
    /// The process that is sweeping, and until when the others leave it to that.
    pub(super) owner: Option<OpId>,
    pub(super) owned_until: Option<Timestamp>,
    pub(super) phase: Phase,
    /// The last key that was looked at.
    pub(super) after: Option<String>,
    /// When this pass began; the last one, at rest.
    pub(super) pass_started_at: Option<Timestamp>,
    /// When the last pass began that was complete.
    pub(super) last_pass_started_at: Option<Timestamp>,
    /// Whether this pass walks the indexes and the payloads too.
    pub(super) tidies: bool,
    pub(super) last_tidied_at: Option<Timestamp>,
    tidy_rounds: u64,
    /// How many tasks, and how many entries and payloads, this pass has seen, and the last one that was complete.
    pub(super) tasks: u64,
    last_tasks: u64,
    pub(super) entries: u64,
    last_entries: u64,
    /// Whether something could not be read, so that the next pass must look at it again.
    pub(super) missed: bool,
    expiring: Vec<Expiring>,
}

impl SweepRecord {
    /// Begins a pass.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.phase = Phase::Tasks;
        self.after = None;
        self.pass_started_at = Some(now);
        self.missed = false;
        (self.tasks, self.entries) = (0, 0);
        self.tidies = self
            .last_tidied_at
            .is_none_or(|at| at.plus_millis(TIDY_INTERVAL_MS) <= now);
    }

    /// Goes on after a page. `next` is its last key, if there may be more behind it.
    pub(super) fn advance(&mut self, next: Option<String>) {
        self.after = next;
        if self.after.is_some() {
            return;
        }
        self.phase = match self.phase {
            Phase::Tasks if self.tidies => Phase::Ready,
            Phase::Ready => Phase::Later,
            Phase::Later => Phase::Leases,
            Phase::Leases => Phase::Data,
            Phase::Tasks | Phase::Data | Phase::Rest => {
                self.complete();
                Phase::Rest
            }
        };
    }

    /// Ends a pass whose tasks have all been looked at.
    pub(super) fn skip_tidying(&mut self) {
        self.after = None;
        self.complete();
        self.phase = Phase::Rest;
    }

    fn complete(&mut self) {
        if !self.missed {
            self.last_pass_started_at = self.pass_started_at;
        }
        self.last_tasks = self.tasks;
        if self.tidies {
            self.last_tidied_at = self.pass_started_at;
            self.last_entries = self.entries;
            // Only its remainders count.
            self.tidy_rounds = self.tidy_rounds.wrapping_add(1);
        }
    }

    /// Records that were written since then have not been judged yet.
    pub(super) fn judged_before(&self) -> Timestamp {
        self.last_pass_started_at
            .map_or(Timestamp::MIN, |at| at.minus_millis(SEEN_AFTER_MS))
    }

    /// Whether an old record is to be read again in this pass, in case that something else than qo has taken its entry away.
    pub(super) fn is_reread(&self, id: TaskId) -> bool {
        let parts = self.last_tasks.div_ceil(READS_MAX).max(PARTS_MIN);
        self.tidies && self.is_part(id, parts)
    }

    /// Whether an entry or a payload is to be compared with its task in this pass. A few are always compared; of many, a part.
    pub(super) fn is_compared(&self, id: TaskId) -> bool {
        self.is_part(id, self.last_entries.div_ceil(READS_MAX).max(1))
    }

    fn is_part(&self, id: TaskId, parts: u64) -> bool {
        let parts = u128::from(parts);
        id.as_uuid().as_u128() % parts == u128::from(self.tidy_rounds) % parts
    }

    /// Remembers when a waiting task expires, if it is among the first to do so.
    pub(super) fn expect(&mut self, expiring: Expiring) {
        self.expiring.retain(|known| known.id != expiring.id);
        let place = self.expiring.partition_point(|known| *known < expiring);
        self.expiring.insert(place, expiring);
        self.expiring.truncate(EXPIRING_MAX);
    }

    /// The tasks that have expired, which are forgotten with that.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Vec<Expiring> {
        // Whoever wrote the record may not have kept the order.
        self.expiring
            .extract_if(.., |known| known.at <= now)
            .collect()
    }
}

/// The record and the state of its object.
pub(super) struct Cursor {
    pub(super) record: SweepRecord,
    pub(super) tag: Option<Tag>,
}

impl DirectEngine {
    pub(super) async fn load_cursor(&self) -> Result<Cursor, EngineError> {
        match self.client().get(SWEEP_KEY).await {
            Ok(object) => Ok(Cursor {
                // A record that cannot be read costs one pass over everything, no more.
                record: serde_json::from_slice(&object.body).unwrap_or_else(|error| {
                    tracing::warn!(%error, "{SWEEP_KEY} cannot be read; the sweep starts anew");
                    SweepRecord::default()
                }),
                tag: Some(object.tag),
            }),
            Err(StoreError::NotFound { .. }) => Ok(Cursor {
                record: SweepRecord::default(),
                tag: None,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the record. Nothing comes back if somebody else has it now.
    pub(super) async fn save_cursor(
        &self,
        cursor: Cursor,
        owner: OpId,
    ) -> Result<Option<Cursor>, EngineError> {
        let Cursor { mut record, tag } = cursor;
        let op = self.runtime().new_op_id();
        record.owner = Some(owner);
        let hold_ms = if record.phase == Phase::Rest {
            0
        } else {
            HOLD_MS
        };
        record.owned_until = Some(self.client().now().plus_millis(hold_ms));
        record.revision = record.revision.saturating_add(1);
        record.recent_ops.extend(record.op_id.replace(op));
        let excess = record.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
        record.recent_ops.drain(..excess);
        let body = serde_json::to_vec(&record)
            .map(Bytes::from)
            .map_err(|error| StoreError::Corrupt {
                key: SWEEP_KEY.to_owned(),
                detail: error.to_string(),
            })?;
        let written = match &tag {
            Some(tag) => self.client().swap(SWEEP_KEY, body, tag, &op).await,
            None => self.client().create(SWEEP_KEY, body, &op).await,
        };
        match written {
            Ok(written) => Ok(written.tag().cloned().map(|tag| Cursor {
                record,
                tag: Some(tag),
            })),
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// Ends the phases of a pass and names them.
    fn phases(record: &mut SweepRecord) -> Vec<Phase> {
        let mut phases = Vec::new();
        while record.phase != Phase::Rest {
            phases.push(record.phase);
            record.advance(None);
        }
        phases
    }

    #[test]
    fn the_indexes_are_walked_once_an_hour() {
        let mut record = SweepRecord::default();
        record.begin(at(10_000));
        let all = [
            Phase::Tasks,
            Phase::Ready,
            Phase::Later,
            Phase::Leases,
            Phase::Data,
        ];
        assert_eq!(phases(&mut record), all);
        record.begin(at(10_300));
        assert_eq!(phases(&mut record), [Phase::Tasks]);
        record.begin(at(13_600));
        assert_eq!(phases(&mut record), all);
    }

    #[test]
    fn a_pass_that_missed_something_does_not_count_as_complete() {
        let mut record = SweepRecord::default();
        assert_eq!(record.judged_before(), Timestamp::MIN);
        record.begin(at(10_000));
        record.missed = true;
        phases(&mut record);
        assert_eq!(record.judged_before(), Timestamp::MIN);
        record.begin(at(20_000));
        phases(&mut record);
        assert_eq!(record.judged_before(), at(19_400));
    }

    #[test]
    fn a_phase_goes_on_after_the_last_key() {
        let mut record = SweepRecord::default();
        record.begin(at(0));
        record.advance(Some("tasks/5".to_owned()));
        assert_eq!(record.phase, Phase::Tasks);
        assert_eq!(record.after.as_deref(), Some("tasks/5"));
    }

    #[test]
    fn every_old_record_is_read_again_in_one_of_the_parts() {
        let mut record = SweepRecord {
            tidies: true,
            last_tasks: 100_000,
            last_entries: 5_000,
            ..SweepRecord::default()
        };
        let ids: Vec<_> = (0..1_000_u128)
            .map(|n| TaskId::from_random(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834)))
            .collect();
        let (mut reread, mut compared) = (vec![0; ids.len()], vec![0; ids.len()]);
        for round in 0..150 {
            record.tidy_rounds = round;
            for (place, id) in ids.iter().enumerate() {
                reread[place] += u32::from(record.is_reread(*id));
                compared[place] += u32::from(record.is_compared(*id));
            }
        }
        // 100,000 records are read in 50 parts, 5,000 entries in 3.
        assert!(reread.iter().all(|times| *times == 3), "{reread:?}");
        assert!(compared.iter().all(|times| *times == 50), "{compared:?}");
        record.tidies = false;
        assert!(!ids.iter().any(|id| record.is_reread(*id)));
    }

    #[test]
    fn the_first_to_expire_are_remembered_once_each() {
        let mut record = SweepRecord::default();
        let expiring = |seconds: u32| Expiring {
            at: at(seconds.into()),
            id: TaskId::from_random(u128::from(seconds) << 100),
        };
        for seconds in (0..1_000).rev() {
            record.expect(expiring(seconds));
            record.expect(expiring(seconds));
        }
        assert_eq!(record.expiring.len(), EXPIRING_MAX);
        assert_eq!(record.take_expired(at(1)), [expiring(0), expiring(1)]);
        assert_eq!(record.take_expired(at(1)), []);
        assert_eq!(record.take_expired(at(9_999)).len(), EXPIRING_MAX - 2);
    }

    #[test]
    fn only_what_has_expired_is_taken_whatever_the_order_is() {
        let expiring = |second: i64, number: u128| Expiring {
            at: at(second),
            id: TaskId::from_random(number),
        };
        let mut record = SweepRecord {
            expiring: vec![expiring(9, 1), expiring(1, 2)],
            ..SweepRecord::default()
        };
        assert_eq!(record.take_expired(at(5)), [expiring(1, 2)]);
        assert_eq!(record.expiring, [expiring(9, 1)]);
    }

    #[test]
    fn the_record_round_trips_and_an_empty_one_is_new() {
        let mut record = SweepRecord::default();
        record.begin(at(7));
        record.expect(Expiring {
            at: at(9),
            id: TaskId::from_random(1),
        });
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            serde_json::from_str::<SweepRecord>(&text).unwrap(),
            record,
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<SweepRecord>("{}").unwrap(),
            SweepRecord::default()
        );
    }
}
