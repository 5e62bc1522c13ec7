//! The position of the sweeper: one object, changed by compare-and-swap. It lets any number of processes share one sweep, and a new
//! process continue where a dead one stopped.
//!
//! The record is written after the work that it records. A crash between the two repeats at most one step, and every part of a step
//! may be repeated. A process that loses the record to another has duplicated work, which is harmless as well.

use bytes::Bytes;
use qo_core::keys::SWEEP_KEY;
use qo_core::{OpId, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{Entry, Tag};
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use super::super::DirectEngine;
use super::SweepReport;

/// How many operations the record keeps.
const RECENT_OPS_MAX: usize = 32;
/// How long the owner may take for a step and the pause after it before another process takes over.
const OWNERSHIP_MS: u64 = 90_000;
/// How much later than the last owner other processes begin a pass. The sweep thus mostly stays with one process, which has cached
/// the checked records.
pub(super) const TAKEOVER_DELAY_MS: u64 = 30_000;
/// How often the indexes and the payloads are walked.
const TIDY_INTERVAL_MS: u64 = 3_600_000;
/// For how many pending tasks the expiry time is stored: those that expire first.
const EXPIRING_MAX: usize = 500;
/// How many damaged records are stored until they are quarantined. A later pass finds the others.
const DAMAGED_MAX: usize = 500;
/// A change that was made, by the store's clock, this long before a pass began was seen by that pass.
const SEEN_AFTER_MS: u64 = 600_000;
/// How many old records, and how many entries, a pass that tidies reads.
const READS_MAX: u64 = 2_000;
/// The number of LISTs of a check of the newest tasks, one per shard. A pass with fewer needs no such check.
const RECENT_LISTS: u64 = 16;
/// How far a check of the newest tasks reaches back before the last one, whose last minute was left to this one.
const RECENT_OVERLAP_MS: u64 = 180_000;
/// How far the first check of the newest tasks reaches back.
const RECENT_FIRST_MS: u64 = 3_600_000;
/// The minimum number of parts in which the old records are read. Each pass that tidies reads one part, so that all are read once a
/// day.
const PARTS_MIN: u64 = 24;

/// The objects that a pass is working on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SweepPhase {
    /// None: the last pass is complete.
    #[default]
    Rest,
    Tasks,
    Ready,
    Later,
    Leases,
    Lines,
    Data,
}

/// A pending task and its expiry time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ExpiringTask {
    pub(super) at: Timestamp,
    pub(super) id: TaskId,
}

/// The stored record of the sweeper.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the stored record"
)]
pub(super) struct SweepRecord {
    revision: u64,
    op_id: Option<OpId>,
    recent_ops: Vec<OpId>,
    /// The process that owns the sweep, and until when other processes leave it alone.
    pub(super) owner: Option<OpId>,
    pub(super) owned_until: Option<Timestamp>,
    pub(super) phase: SweepPhase,
    /// The last key that was swept.
    pub(super) after: Option<String>,
    /// When this pass began, or the last one if none is running.
    pub(super) pass_started_at: Option<Timestamp>,
    /// When the last complete pass began.
    pub(super) last_pass_started_at: Option<Timestamp>,
    /// Whether this pass also walks the indexes and the payloads.
    pub(super) tidies: bool,
    pub(super) last_tidied_at: Option<Timestamp>,
    tidy_rounds: u64,
    /// The number of tasks, and of entries and payloads, in this pass and in the last complete one.
    pub(super) tasks: u64,
    last_tasks: u64,
    pub(super) entries: u64,
    last_entries: u64,
    /// Whether an object could not be read, so that the next pass must check it again.
    pub(super) missed: bool,
    expiring: Vec<ExpiringTask>,
    /// The tasks whose records are damaged. The next step quarantines them, and the lines are walked afterwards.
    damaged: Vec<TaskId>,
    /// Whether a record was quarantined since the last walk over all lines began: it may have been the head of a line.
    beheaded: bool,
    /// Whether this pass walks all lines because of it.
    walks_lines: bool,
    /// When the newest tasks were last checked.
    recent_checked_at: Option<Timestamp>,
}

impl SweepRecord {
    /// Counts a page of entries of an index, of lines or of payloads.
    pub(super) fn count_entries(&mut self, entries: &[Entry], report: &mut SweepReport) {
        report.listed += entries.len();
        self.entries = self.entries.saturating_add(entries.len() as u64);
    }

    /// From which time on new tasks must be checked now, apart from the pass: `None` if the pass reaches them soon enough.
    pub(super) fn recent_from(
        &self,
        now: Timestamp,
        pages: usize,
        rest_ms: u64,
    ) -> Option<Timestamp> {
        let tasks = self.tasks.max(self.last_tasks);
        let is_small = tasks <= (pages as u64).saturating_mul(RECENT_LISTS);
        let is_tidying = !matches!(self.phase, SweepPhase::Rest | SweepPhase::Tasks);
        if is_small && !is_tidying {
            return None;
        }
        match self.recent_checked_at {
            Some(at) if now < at.plus_millis(rest_ms) => None,
            Some(at) => Some(at.minus_millis(RECENT_OVERLAP_MS)),
            None => Some(now.minus_millis(RECENT_FIRST_MS)),
        }
    }

    /// Records that the tasks created before `now` were checked.
    pub(super) fn set_recent_checked(&mut self, now: Timestamp) {
        self.recent_checked_at = Some(now);
    }

    /// Begins a pass.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.phase = SweepPhase::Tasks;
        self.after = None;
        self.pass_started_at = Some(now);
        self.missed = false;
        (self.tasks, self.entries) = (0, 0);
        self.tidies = self
            .last_tidied_at
            .is_none_or(|at| at.plus_millis(TIDY_INTERVAL_MS) <= now);
    }

    /// Advances after a page. `next` is its last key, if there may be another page.
    pub(super) fn advance(&mut self, next: Option<String>) {
        self.after = next;
        if self.after.is_some() {
            return;
        }
        self.phase = match self.phase {
            SweepPhase::Tasks if self.tidies => SweepPhase::Ready,
            SweepPhase::Ready => SweepPhase::Later,
            SweepPhase::Later => SweepPhase::Leases,
            SweepPhase::Leases => SweepPhase::Lines,
            SweepPhase::Lines if self.tidies => SweepPhase::Data,
            SweepPhase::Tasks if self.beheaded || !self.damaged.is_empty() => SweepPhase::Lines,
            SweepPhase::Tasks | SweepPhase::Lines | SweepPhase::Data | SweepPhase::Rest => {
                self.complete();
                SweepPhase::Rest
            }
        };
        self.walks_lines = self.phase == SweepPhase::Lines && std::mem::take(&mut self.beheaded);
    }

    /// Stores that the record of a task is damaged.
    pub(super) fn remember_damaged(&mut self, id: TaskId) {
        if self.damaged.contains(&id) {
            return;
        }
        if self.damaged.len() < DAMAGED_MAX {
            self.damaged.push(id);
        } else {
            self.missed = true;
        }
    }

    /// How many damaged records are to be quarantined.
    pub(super) fn damaged_count(&self) -> usize {
        self.damaged.len()
    }

    /// Removes and returns the tasks whose damaged records are to be quarantined. All lines are walked after that.
    pub(super) fn take_damaged(&mut self) -> Vec<TaskId> {
        let damaged = std::mem::take(&mut self.damaged);
        if !damaged.is_empty() {
            self.walk_lines();
        }
        damaged
    }

    /// Makes the sweeper walk all lines: in this pass, if it has not reached them yet.
    fn walk_lines(&mut self) {
        if self.phase == SweepPhase::Lines && self.after.is_none() {
            self.walks_lines = true;
        } else {
            self.beheaded = true;
        }
    }

    /// Whether this pass walks all lines because a record was quarantined.
    pub(super) fn walks_lines(&self) -> bool {
        self.walks_lines
    }

    /// Lets the next pass walk the lines again, if this one walks all of them and could not read one.
    pub(super) fn repeat_lines(&mut self) {
        self.beheaded |= self.walks_lines;
    }

    /// Ends a pass after its tasks phase, without tidying.
    pub(super) fn skip_tidying(&mut self) {
        self.repeat_lines();
        self.walks_lines = false;
        self.after = None;
        self.complete();
        self.phase = SweepPhase::Rest;
    }

    fn complete(&mut self) {
        if !self.missed {
            self.last_pass_started_at = self.pass_started_at;
        }
        self.last_tasks = self.tasks;
        if self.tidies {
            self.last_tidied_at = self.pass_started_at;
            self.last_entries = self.entries;
            // Only its remainders are used.
            self.tidy_rounds = self.tidy_rounds.wrapping_add(1);
        }
    }

    /// Records written before this time were checked by an earlier pass.
    pub(super) fn checked_before(&self) -> Timestamp {
        self.last_pass_started_at
            .map_or(Timestamp::MIN, |at| at.minus_millis(SEEN_AFTER_MS))
    }

    /// Whether an old record is read again in this pass, in case another program has deleted its entry.
    pub(super) fn is_reread(&self, id: TaskId) -> bool {
        let parts = self.last_tasks.div_ceil(READS_MAX).max(PARTS_MIN);
        self.tidies && self.is_in_part(id, parts)
    }

    /// Whether an entry or a payload is compared with its task in this pass: all of them if there are few, otherwise a part.
    pub(super) fn is_compared(&self, id: TaskId) -> bool {
        self.is_in_part(id, self.last_entries.div_ceil(READS_MAX).max(1))
    }

    fn is_in_part(&self, id: TaskId, parts: u64) -> bool {
        let parts = u128::from(parts);
        id.as_uuid().as_u128() % parts == u128::from(self.tidy_rounds) % parts
    }

    /// Stores the expiry time of a pending task, if it is among the first to expire.
    pub(super) fn remember_expiry(&mut self, expiring: ExpiringTask) {
        self.expiring.retain(|known| known.id != expiring.id);
        let position = self.expiring.partition_point(|known| *known < expiring);
        self.expiring.insert(position, expiring);
        self.expiring.truncate(EXPIRING_MAX);
    }

    /// Removes and returns the tasks that have expired.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Vec<ExpiringTask> {
        // The writer of the record may not have kept the order.
        self.expiring
            .extract_if(.., |known| known.at <= now)
            .collect()
    }
}

/// The record and the tag of its object.
pub(super) struct SweepCursor {
    pub(super) record: SweepRecord,
    pub(super) tag: Option<Tag>,
}

impl DirectEngine {
    pub(super) async fn load_cursor(&self) -> Result<SweepCursor, EngineError> {
        match self.client().get(SWEEP_KEY).await {
            Ok(object) => Ok(SweepCursor {
                // A record that cannot be parsed only costs one full pass.
                record: serde_json::from_slice(&object.body).unwrap_or_else(|error| {
                    tracing::warn!(%error, "{SWEEP_KEY} cannot be parsed; starting a new sweep");
                    SweepRecord::default()
                }),
                tag: Some(object.tag),
            }),
            Err(StoreError::NotFound { .. }) => Ok(SweepCursor {
                record: SweepRecord::default(),
                tag: None,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the record. Returns `None` if another process has taken over.
    pub(super) async fn save_cursor(
        &self,
        cursor: SweepCursor,
        owner: OpId,
    ) -> Result<Option<SweepCursor>, EngineError> {
        let SweepCursor { mut record, tag } = cursor;
        let op = self.runtime().new_op_id();
        record.owner = Some(owner);
        let ownership_ms = if record.phase == SweepPhase::Rest {
            0
        } else {
            OWNERSHIP_MS
        };
        record.owned_until = Some(self.client().now().plus_millis(ownership_ms));
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
            Ok(written) => Ok(written.tag().cloned().map(|tag| SweepCursor {
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

    /// Advances through the phases of a pass and returns them.
    fn phases(record: &mut SweepRecord) -> Vec<SweepPhase> {
        let mut phases = Vec::new();
        while record.phase != SweepPhase::Rest {
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
            SweepPhase::Tasks,
            SweepPhase::Ready,
            SweepPhase::Later,
            SweepPhase::Leases,
            SweepPhase::Lines,
            SweepPhase::Data,
        ];
        assert_eq!(phases(&mut record), all);
        record.begin(at(10_300));
        assert_eq!(phases(&mut record), [SweepPhase::Tasks]);
        record.begin(at(13_600));
        assert_eq!(phases(&mut record), all);
    }

    #[test]
    fn the_lines_are_walked_after_a_record_was_quarantined() {
        let mut record = SweepRecord {
            last_tidied_at: Some(at(10_000)),
            ..SweepRecord::default()
        };
        record.begin(at(10_300));
        record.remember_damaged(TaskId::from_random(1));
        record.remember_damaged(TaskId::from_random(1));
        record.advance(None);
        assert_eq!(record.phase, SweepPhase::Lines);
        assert!(!record.walks_lines(), "nothing is quarantined yet");
        assert_eq!(record.take_damaged(), [TaskId::from_random(1)]);
        assert!(record.walks_lines());
        record.advance(Some("lines/5".to_owned()));
        assert!(record.walks_lines());
        // A record that is quarantined during the walk, and a line that cannot be read: the next pass walks again.
        record.remember_damaged(TaskId::from_random(2));
        record.take_damaged();
        record.advance(None);
        assert_eq!(record.phase, SweepPhase::Rest);
        record.begin(at(10_600));
        record.advance(None);
        assert!(record.phase == SweepPhase::Lines && record.walks_lines());
        record.repeat_lines();
        record.advance(None);
        record.begin(at(10_900));
        assert_eq!(phases(&mut record), [SweepPhase::Tasks, SweepPhase::Lines]);
        record.begin(at(11_200));
        assert_eq!(phases(&mut record), [SweepPhase::Tasks]);
    }

    #[test]
    fn a_pass_that_missed_something_does_not_count_as_complete() {
        let mut record = SweepRecord::default();
        assert_eq!(record.checked_before(), Timestamp::MIN);
        record.begin(at(10_000));
        record.missed = true;
        phases(&mut record);
        assert_eq!(record.checked_before(), Timestamp::MIN);
        record.begin(at(20_000));
        phases(&mut record);
        assert_eq!(record.checked_before(), at(19_400));
    }

    #[test]
    fn a_phase_continues_after_the_last_key() {
        let mut record = SweepRecord::default();
        record.begin(at(0));
        record.advance(Some("tasks/5".to_owned()));
        assert_eq!(record.phase, SweepPhase::Tasks);
        assert_eq!(record.after.as_deref(), Some("tasks/5"));
    }

    #[test]
    fn every_old_record_is_read_again_in_one_part() {
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
            for (index, id) in ids.iter().enumerate() {
                reread[index] += u32::from(record.is_reread(*id));
                compared[index] += u32::from(record.is_compared(*id));
            }
        }
        // 100,000 records are read in 50 parts, 5,000 entries in 3.
        assert!(reread.iter().all(|times| *times == 3), "{reread:?}");
        assert!(compared.iter().all(|times| *times == 50), "{compared:?}");
        record.tidies = false;
        assert!(!ids.iter().any(|id| record.is_reread(*id)));
    }

    #[test]
    fn the_first_tasks_to_expire_are_stored_once_each() {
        let mut record = SweepRecord::default();
        let expiring = |seconds: u32| ExpiringTask {
            at: at(seconds.into()),
            id: TaskId::from_random(u128::from(seconds) << 100),
        };
        for seconds in (0..1_000).rev() {
            record.remember_expiry(expiring(seconds));
            record.remember_expiry(expiring(seconds));
        }
        assert_eq!(record.expiring.len(), EXPIRING_MAX);
        assert_eq!(record.take_expired(at(1)), [expiring(0), expiring(1)]);
        assert_eq!(record.take_expired(at(1)), []);
        assert_eq!(record.take_expired(at(9_999)).len(), EXPIRING_MAX - 2);
    }

    #[test]
    fn only_expired_tasks_are_taken_in_any_order() {
        let expiring = |second: i64, number: u128| ExpiringTask {
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
    fn the_record_round_trips_and_an_empty_object_is_the_default() {
        let mut record = SweepRecord::default();
        record.begin(at(7));
        record.remember_expiry(ExpiringTask {
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
