//! Repairs the leftovers of crashes, in slow passes over all objects that repeat forever.
//!
//! | problem | found by | repair |
//! | --- | --- | --- |
//! | a pending task without its ready or later entry, a running one without its lease entry | [`tasks`] | write the entry |
//! | a pending task that has expired or has waited too long | [`tasks`] | end it, as a claim would |
//! | a record that cannot be parsed | [`tasks`], [`quarantine`] | move it to `quarantine/`, with the reason; then walk all lines, because it may have been the head of one |
//! | a task that is not in the line of its ordering key, or is still in it after its end; a line whose head has no entry | [`tasks`], [`lines`] | change the line, write the entry |
//! | an index entry that does not match its task | [`entries`], [`ready_index`] | delete it |
//! | a large payload that no task refers to | [`orphans`] | delete it after a day |
//!
//! **Nothing is ever deleted because a read failed**: an entry is deleted only if the store has returned its task in another state,
//! or has reported that the task does not exist.
//!
//! # Why few reads are enough
//!
//! An entry is missing only if its task was written and the writer died before it wrote the entry, because no index key is reused
//! and entries are deleted only after their task has changed. A record that was checked once need not be read again before it
//! changes, and a LIST shows when each record was last written. A pass therefore reads only the records written since the last
//! pass. Damage done to an index by other programs is found too, but more slowly: once an hour a pass also *tidies*. It reads part
//! of the old records again, so that all of them are read once a day (2,000 an hour if there are more than 48,000), walks the
//! indexes and the payloads, and compares up to about 2,000 of them with their tasks, in turn.
//!
//! # Requests
//!
//! | | LIST | GET | PUT |
//! | --- | --- | --- | --- |
//! | a pass | 1 per 1,000 tasks | 1 per task that finished since the last pass, 2 per other task that changed; 1 to 3 more per task with an ordering key | 1 per 4,000 tasks |
//! | a pass that tidies, once an hour, also | 1 per 1,000 entries and payloads, at least 5, and up to 3 per queue and type with due tasks | 1 per old record or entry that is read again, at most about 4,000 | |
//! | a pass that has quarantined a record, also | 1 per 1,000 lines | 1 per line, 2 or 3 more if tasks are in it | |
//! | any other process | | 1 per pass | |
//!
//! A record written less than a minute ago is left to the next pass, because its entry may still be on its way.
//!
//! An idle bucket with up to 1,000 tasks costs 1 LIST and 1 PUT every five minutes and 5 LISTs an hour, and 1 GET a pass for each further
//! process; `docs/guides/buckets.md` has the price. Each task that runs costs one GET in its lifetime. A large bucket takes longer instead of
//! costing more: a step covers 4,000 tasks, every 30 s. 100,000 tasks take 12 minutes, a million two hours.

mod cursor;
mod entries;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;
mod lines;
mod orphans;
mod quarantine;
mod ready_index;
mod recent;
mod retention;
mod tasks;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{DATA_PREFIX, LATER_PREFIX, LEASES_PREFIX, LINES_PREFIX, TASKS_PREFIX};
use qo_core::{Action, OpId, Timestamp};
use qo_engine::EngineError;
use qo_store::client::PAGE_LIMIT_MAX;
use qo_store::runtime::RuntimeExt;

use self::cursor::{ExpiringTask, SweepCursor, SweepPhase, SweepRecord, TAKEOVER_DELAY_MS};
use super::DirectEngine;

/// How many pages one step covers.
const STEP_PAGES: usize = 4;
/// The maximum number of LISTs of one step.
const STEP_LISTS_MAX: usize = 16;
/// Objects written less than this ago are left to the next pass, because an entry may still be on its way.
const GRACE_MS: u64 = 60_000;
/// The maximum size of [`CheckedRecords`].
const CHECKED_MAX: usize = 200_000;

/// When the next step is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepNext {
    /// The pass continues.
    Continue,
    /// The pass is complete.
    Rest,
    /// It is not time for a pass yet, or another process is sweeping: not before this time.
    NotBefore(Timestamp),
}

/// The result of one step of the sweeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// When the next step is due.
    pub next: SweepNext,
    /// Objects that were listed.
    pub listed: usize,
    /// Tasks that were read.
    pub read: usize,
    /// Missing index entries that were written.
    pub repaired: usize,
    /// Expired pending tasks that were cancelled.
    pub expired: usize,
    /// Stale index entries, which are being deleted.
    pub stale: usize,
    /// Deleted payloads that no task referred to.
    pub orphans: usize,
    /// Finished tasks that were purged because their retention time has passed.
    pub purged: usize,
    /// Records that were moved to `quarantine/`.
    pub quarantined: usize,
    /// Objects that could not be read or written because the store failed; checked again in the next pass.
    pub failed: usize,
    /// Objects that were skipped: they do not belong to qo, or are handled elsewhere.
    pub left: usize,
}

impl SweepReport {
    fn new(next: SweepNext) -> Self {
        Self {
            next,
            listed: 0,
            read: 0,
            repaired: 0,
            expired: 0,
            stale: 0,
            orphans: 0,
            purged: 0,
            quarantined: 0,
            failed: 0,
            left: 0,
        }
    }
}

/// The speed of the sweeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SweepPace {
    /// The page size of LISTs.
    pub(super) page_size: usize,
    /// The minimum time from the start of a pass to the start of the next.
    pub(super) rest: Duration,
    /// How long finished tasks are kept; forever if absent.
    pub(super) retention: Option<Duration>,
}

impl Default for SweepPace {
    fn default() -> Self {
        Self {
            page_size: PAGE_LIMIT_MAX,
            rest: Duration::ZERO,
            retention: None,
        }
    }
}

#[derive(Default)]
pub(super) struct Sweeper {
    /// Locked during a step, so that a process runs one step at a time.
    state: tokio::sync::Mutex<SweeperState>,
    /// The old records that the retention does not reach yet.
    kept: std::sync::Mutex<retention::KeptRecords>,
}

#[derive(Default)]
struct SweeperState {
    /// Identifies this process as an owner of the cursor.
    owner_id: Option<OpId>,
    /// The cursor, while this process owns it.
    cursor: Option<SweepCursor>,
    checked: CheckedRecords,
}

/// Hashes of record versions that were checked and need no repair. They save reads of records that were written shortly before the
/// last pass began. A hash collision delays the check of a record until it is read again.
#[derive(Default)]
struct CheckedRecords(BTreeSet<u64>);

impl CheckedRecords {
    fn insert(&mut self, hash: u64) {
        if self.0.len() >= CHECKED_MAX {
            self.0.clear();
        }
        self.0.insert(hash);
    }

    fn contains(&self, hash: u64) -> bool {
        self.0.contains(&hash)
    }
}

/// Whether this process may run a step.
enum CursorOwnership {
    Ours(Box<SweepCursor>),
    NotBefore(Timestamp),
}

impl DirectEngine {
    /// Runs one step of the sweep: a few pages of tasks, entries or payloads. A step after a complete pass begins the next pass.
    pub async fn sweep_step(&self) -> Result<SweepReport, EngineError> {
        self.sweep_at(SweepPace::default()).await
    }

    /// Runs one step, if it is time for one and no other process is sweeping.
    pub(super) async fn sweep_at(&self, pace: SweepPace) -> Result<SweepReport, EngineError> {
        let mut state = self.shared.sweeper.state.lock().await;
        let owner_id = *state
            .owner_id
            .get_or_insert_with(|| self.runtime().new_op_id());
        // After an error below, the next step reads the stored record.
        let cached = state.cursor.take();
        let mut cursor = match self.acquire_cursor(cached, owner_id, pace).await? {
            CursorOwnership::Ours(cursor) => *cursor,
            CursorOwnership::NotBefore(at) => {
                return Ok(SweepReport::new(SweepNext::NotBefore(at)));
            }
        };
        let mut report = SweepReport::new(SweepNext::Continue);
        let record = &mut cursor.record;
        if record.phase == SweepPhase::Rest {
            record.begin(self.client().now());
        }
        self.quarantine_damaged(record, &mut report).await;
        let damaged_before = record.damaged_count();
        self.expire_due(record, &mut report).await;
        let rest_ms = u64::try_from(pace.rest.as_millis()).unwrap_or(u64::MAX);
        let now = self.client().now();
        if let Some(from) = record.recent_from(now, pace.page_size, rest_ms) {
            self.sweep_recent(from, now, record, &mut state.checked, &mut report)
                .await;
        }
        report.listed = 0;
        for _ in 0..STEP_LISTS_MAX {
            if record.damaged_count() > damaged_before {
                // The next step quarantines them, before it walks the lines.
                break;
            }
            if let Err(error) = self
                .sweep_page(record, &mut state.checked, pace, &mut report)
                .await
            {
                if record.phase == SweepPhase::Tasks {
                    return Err(error);
                }
                // An index that cannot be listed must not stop the passes over the tasks.
                tracing::warn!(%error, "could not tidy the indexes; trying again in an hour");
                report.failed += 1;
                record.skip_tidying();
            }
            if record.phase == SweepPhase::Rest {
                report.next = SweepNext::Rest;
                break;
            }
            if report.listed >= STEP_PAGES * pace.page_size {
                break;
            }
        }
        state.cursor = self.save_cursor(cursor, owner_id).await?;
        Ok(report)
    }

    /// Acquires the cursor, if no other process owns it and a step is due.
    async fn acquire_cursor(
        &self,
        cached: Option<SweepCursor>,
        owner_id: OpId,
        pace: SweepPace,
    ) -> Result<CursorOwnership, EngineError> {
        let cursor = match cached {
            Some(cursor) => cursor,
            None => self.load_cursor().await?,
        };
        let record = &cursor.record;
        let now = self.client().now();
        let is_ours = record.owner == Some(owner_id);
        if let Some(until) = record.owned_until.filter(|until| !is_ours && *until > now) {
            return Ok(CursorOwnership::NotBefore(until));
        }
        let rest_ms = u64::try_from(pace.rest.as_millis()).unwrap_or(u64::MAX);
        if record.phase == SweepPhase::Rest && rest_ms > 0 {
            let delay_ms = if is_ours || record.owner.is_none() {
                0
            } else {
                TAKEOVER_DELAY_MS
            };
            let due = record
                .pass_started_at
                .map_or(now, |at| at.plus_millis(rest_ms + delay_ms));
            if due > now {
                return Ok(CursorOwnership::NotBefore(due));
            }
        }
        if is_ours {
            return Ok(CursorOwnership::Ours(Box::new(cursor)));
        }
        let mut cursor = cursor;
        if cursor.record.phase == SweepPhase::Rest {
            cursor.record.begin(now);
        }
        match self.save_cursor(cursor, owner_id).await? {
            Some(cursor) => Ok(CursorOwnership::Ours(Box::new(cursor))),
            None => Ok(CursorOwnership::NotBefore(
                now.plus_millis(TAKEOVER_DELAY_MS),
            )),
        }
    }

    /// Sweeps one page of the current phase.
    async fn sweep_page(
        &self,
        record: &mut SweepRecord,
        checked: &mut CheckedRecords,
        pace: SweepPace,
        report: &mut SweepReport,
    ) -> Result<(), EngineError> {
        let page_size = pace.page_size;
        let after = record.after.clone();
        let prefix = match record.phase {
            SweepPhase::Rest => return Ok(()),
            SweepPhase::Ready => {
                let page = self.ready_page(after.as_deref(), page_size).await?;
                if let Some(page) = &page {
                    record.count_entries(&page.entries, report);
                    self.sweep_entries(&page.entries, record, report).await;
                }
                record.advance(page.and_then(|page| page.next));
                return Ok(());
            }
            SweepPhase::Tasks => TASKS_PREFIX,
            SweepPhase::Later => LATER_PREFIX,
            SweepPhase::Leases => LEASES_PREFIX,
            SweepPhase::Lines => LINES_PREFIX,
            SweepPhase::Data => DATA_PREFIX,
        };
        let page = self
            .client()
            .page(prefix, after.as_deref(), page_size)
            .await?;
        if record.phase != SweepPhase::Tasks {
            record.count_entries(&page.entries, report);
        }
        match record.phase {
            SweepPhase::Tasks => {
                self.sweep_tasks(&page.entries, record, checked, report)
                    .await;
                self.purge_old(&page.entries, pace.retention, report).await;
            }
            SweepPhase::Lines => self.sweep_lines(&page.entries, record, report).await,
            SweepPhase::Data => self.sweep_payloads(&page.entries, record, report).await,
            _ => self.sweep_entries(&page.entries, record, report).await,
        }
        record.advance(page.next);
        Ok(())
    }

    /// Cancels the tasks that have expired since they were read.
    async fn expire_due(&self, record: &mut SweepRecord, report: &mut SweepReport) {
        let due = record.take_expired(self.client().now());
        let mut results = futures_util::stream::iter(due)
            .map(|expiring| async move {
                let result = self.change(expiring.id, None, Action::Expire).await;
                (expiring, result)
            })
            .buffer_unordered(self.config().concurrency);
        let mut failed: Vec<ExpiringTask> = Vec::new();
        while let Some((expiring, result)) = results.next().await {
            match result {
                Ok(_) => report.expired += 1,
                // It was claimed, cancelled, replayed or purged in the meantime.
                Err(EngineError::Rejected(_) | EngineError::Unreadable { .. }) => {}
                Err(error) => {
                    tracing::debug!(task = %expiring.id, %error, "could not cancel an expired task; trying again later");
                    report.failed += 1;
                    failed.push(expiring);
                }
            }
        }
        for expiring in failed {
            record.remember_expiry(expiring);
        }
    }

    /// Objects written after this time are left to the next pass.
    fn grace_cutoff(&self) -> Timestamp {
        self.client().now().minus_millis(GRACE_MS)
    }
}
