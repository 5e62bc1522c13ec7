//! Finds what a crash has left behind, in a slow walk over everything that never ends.
//!
//! | what | where it is found | what is done |
//! | --- | --- | --- |
//! | a pending task without its ready or later entry, a running one without its lease entry | [`tasks`] | the entry is written |
//! | a pending task that has expired | [`tasks`] | it is cancelled, as a claim would do |
//! | a record that cannot be read | [`tasks`], [`quarantine`] | it is moved to `quarantine/`, with the reason |
//! | an index entry whose task is not in that state | [`entries`], [`lanes`] | it is deleted |
//! | a large payload that no task refers to | [`orphans`] | it is deleted after a day |
//!
//! **Nothing is ever deleted because a read failed**: an entry is deleted when the store has shown its task in another state,
//! or has said that there is none.
//!
//! # Why it may look so rarely
//!
//! An entry goes missing only when its task was written and the writer died before it wrote the entry, because no index key
//! is used twice and entries are deleted only after their task has moved on. So a record that was judged once need not be
//! read again before it changes, and a LIST shows when each was last written: a pass reads only what was written since the
//! last one. What something else than qo may do to an index is found too, more slowly: once an hour a pass also *tidies*. It
//! reads a part of the old records again, so that all of them are read once a day (of more than 48,000 it takes 2,000 an
//! hour), walks the indexes and the payloads, and compares up to about 2,000 of them with their tasks, in turn.
//!
//! # Requests
//!
//! | | LIST | GET | PUT |
//! | --- | --- | --- | --- |
//! | a pass | 1 per 1,000 tasks | 1 per task that ended since the last pass, 2 per other task that changed | 1 per 4,000 tasks |
//! | a pass that tidies, once an hour, also | 1 per 1,000 entries and payloads, at least 4, and up to 3 per queue and type with tasks that are due | 1 per old record or entry that is read again, at most about 4,000 | |
//! | any other process | | 1 per pass | |
//!
//! A record that was just written, less than a minute ago, is left to the next pass, because its entry may be on its way.
//!
//! An idle bucket with up to 1,000 tasks costs 1 LIST and 1 PUT every five minutes and 4 LISTs an hour: 8,640 passes a month,
//! **$0.10 a month** for the whole bucket, and a third of a cent for each further process. Each task that ever runs costs one GET in its
//! life: $0.40 a million. A large bucket is walked more slowly instead of at a higher price: a step takes 4,000 tasks, every
//! 30 s, which is at most $2.20 a month in requests; 100,000 tasks take 12 minutes, a million two hours.

mod cursor;
mod entries;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;
mod orphans;
mod quarantine;
mod ready_index;
mod tasks;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{DATA_PREFIX, LATER_PREFIX, LEASES_PREFIX, TASKS_PREFIX};
use qo_core::{Action, OpId, Timestamp};
use qo_engine::EngineError;
use qo_store::client::PAGE_LIMIT_MAX;
use qo_store::runtime::RuntimeExt;

use self::cursor::{Cursor, Expiring, Phase, STAND_BACK_MS, SweepRecord};
use super::DirectEngine;

/// How many pages' worth of objects one step looks at.
const STEP_PAGES: usize = 4;
/// How many LISTs one step sends at the most.
const STEP_LISTS_MAX: usize = 16;
/// What was written less than this ago is left to the next pass: its entry may be on its way.
const GRACE_MS: u64 = 60_000;
/// How many records are remembered as judged.
const SETTLED_MAX: usize = 200_000;

/// When there will be something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepNext {
    /// The pass goes on.
    Continue,
    /// The pass is complete.
    Rest,
    /// It is not time for a pass yet, or another process is at it: not before then.
    NotBefore(Timestamp),
}

/// What one step of the sweeper has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepReport {
    /// What comes next.
    pub next: SweepNext,
    /// Objects that were listed.
    pub listed: usize,
    /// Tasks that were read.
    pub read: usize,
    /// Missing index entries that were written.
    pub repaired: usize,
    /// Pending tasks that had expired.
    pub expired: usize,
    /// Index entries that were no longer true and are being deleted.
    pub stale: usize,
    /// Payloads that nobody refers to, deleted.
    pub orphans: usize,
    /// Records that were moved to `quarantine/`.
    pub quarantined: usize,
    /// What could not be read or written because the store did not answer; looked at again in the next pass.
    pub failed: usize,
    /// Objects that are none of qo's, or that are left to others, left alone.
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
            quarantined: 0,
            failed: 0,
            left: 0,
        }
    }
}

/// How fast to sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SweepPace {
    /// How many objects one LIST asks for.
    pub(super) page_size: usize,
    /// How long after the beginning of a pass the next one begins at the earliest.
    pub(super) rest: Duration,
}

impl Default for SweepPace {
    fn default() -> Self {
        Self {
            page_size: PAGE_LIMIT_MAX,
            rest: Duration::ZERO,
        }
    }
}

#[derive(Default)]
pub(super) struct Sweeper {
    /// Held during a step: a process sweeps as one.
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    /// This process, among those that sweep.
    me: Option<OpId>,
    /// The cursor, while it is ours.
    cursor: Option<Cursor>,
    settled: Settled,
}

/// The states of records that were judged and need nothing, by their hashes. It spares the reads of what was written shortly
/// before the last pass began; a hash that means another record delays its judgement until it is read again.
#[derive(Default)]
struct Settled(BTreeSet<u64>);

impl Settled {
    fn insert(&mut self, hash: u64) {
        if self.0.len() >= SETTLED_MAX {
            self.0.clear();
        }
        self.0.insert(hash);
    }

    fn contains(&self, hash: u64) -> bool {
        self.0.contains(&hash)
    }
}

/// Whether a step can be taken.
enum Taken {
    Ours(Box<Cursor>),
    NotBefore(Timestamp),
}

impl DirectEngine {
    /// Takes one step of the sweep: some pages of tasks, entries or payloads. A step after a complete pass begins the next.
    pub async fn sweep_step(&self) -> Result<SweepReport, EngineError> {
        self.sweep_at(SweepPace::default()).await
    }

    /// Takes one step, if it is time for one and no other process is at it.
    pub(super) async fn sweep_at(&self, pace: SweepPace) -> Result<SweepReport, EngineError> {
        let mut state = self.shared.sweeper.state.lock().await;
        let me = *state.me.get_or_insert_with(|| self.runtime().new_op_id());
        // Whatever goes wrong below, the stored record is asked next time.
        let known = state.cursor.take();
        let mut cursor = match self.take_cursor(known, me, pace).await? {
            Taken::Ours(cursor) => *cursor,
            Taken::NotBefore(at) => return Ok(SweepReport::new(SweepNext::NotBefore(at))),
        };
        let mut report = SweepReport::new(SweepNext::Continue);
        let record = &mut cursor.record;
        if record.phase == Phase::Rest {
            record.begin(self.client().now());
        }
        self.expire_due(record, &mut report).await;
        for _ in 0..STEP_LISTS_MAX {
            if let Err(error) = self
                .sweep_page(record, &mut state.settled, pace.page_size, &mut report)
                .await
            {
                if record.phase == Phase::Tasks {
                    return Err(error);
                }
                // An index that cannot be listed must not keep the tasks from being looked at.
                tracing::warn!(%error, "could not tidy up; trying again in an hour");
                report.failed += 1;
                record.skip_tidying();
            }
            if record.phase == Phase::Rest {
                report.next = SweepNext::Rest;
                break;
            }
            if report.listed >= STEP_PAGES * pace.page_size {
                break;
            }
        }
        state.cursor = self.save_cursor(cursor, me).await?;
        Ok(report)
    }

    /// The cursor, if this process may go on with it.
    async fn take_cursor(
        &self,
        known: Option<Cursor>,
        me: OpId,
        pace: SweepPace,
    ) -> Result<Taken, EngineError> {
        let cursor = match known {
            Some(cursor) => cursor,
            None => self.load_cursor().await?,
        };
        let record = &cursor.record;
        let now = self.client().now();
        let is_ours = record.owner == Some(me);
        if let Some(until) = record.owned_until.filter(|until| !is_ours && *until > now) {
            return Ok(Taken::NotBefore(until));
        }
        let rest_ms = u64::try_from(pace.rest.as_millis()).unwrap_or(u64::MAX);
        if record.phase == Phase::Rest && rest_ms > 0 {
            let stand_back_ms = if is_ours || record.owner.is_none() {
                0
            } else {
                STAND_BACK_MS
            };
            let due = record
                .pass_started_at
                .map_or(now, |at| at.plus_millis(rest_ms + stand_back_ms));
            if due > now {
                return Ok(Taken::NotBefore(due));
            }
        }
        if is_ours {
            return Ok(Taken::Ours(Box::new(cursor)));
        }
        let mut cursor = cursor;
        if cursor.record.phase == Phase::Rest {
            cursor.record.begin(now);
        }
        match self.save_cursor(cursor, me).await? {
            Some(cursor) => Ok(Taken::Ours(Box::new(cursor))),
            None => Ok(Taken::NotBefore(now.plus_millis(STAND_BACK_MS))),
        }
    }

    /// One page of whatever the pass is at.
    async fn sweep_page(
        &self,
        record: &mut SweepRecord,
        settled: &mut Settled,
        page_size: usize,
        report: &mut SweepReport,
    ) -> Result<(), EngineError> {
        let after = record.after.clone();
        let prefix = match record.phase {
            Phase::Rest => return Ok(()),
            Phase::Ready => {
                let page = self.ready_page(after.as_deref(), page_size).await?;
                if let Some(page) = &page {
                    self.sweep_entries(&page.entries, record, report).await;
                }
                record.advance(page.and_then(|page| page.next));
                return Ok(());
            }
            Phase::Tasks => TASKS_PREFIX,
            Phase::Later => LATER_PREFIX,
            Phase::Leases => LEASES_PREFIX,
            Phase::Data => DATA_PREFIX,
        };
        let page = self
            .client()
            .page(prefix, after.as_deref(), page_size)
            .await?;
        match record.phase {
            Phase::Tasks => {
                self.sweep_tasks(&page.entries, record, settled, report)
                    .await;
            }
            Phase::Data => self.sweep_payloads(&page.entries, record, report).await,
            _ => self.sweep_entries(&page.entries, record, report).await,
        }
        record.advance(page.next);
        Ok(())
    }

    /// Calls off the tasks that are known to have expired since they were read.
    async fn expire_due(&self, record: &mut SweepRecord, report: &mut SweepReport) {
        let due = record.take_expired(self.client().now());
        let mut results = futures_util::stream::iter(due)
            .map(|expiring| async move {
                let result = self.change(expiring.id, None, Action::Expire).await;
                (expiring, result)
            })
            .buffer_unordered(self.config().concurrency);
        let mut again: Vec<Expiring> = Vec::new();
        while let Some((expiring, result)) = results.next().await {
            match result {
                Ok(_) => report.expired += 1,
                // It was claimed, called off, replayed or purged meanwhile.
                Err(EngineError::Rejected(_) | EngineError::Unreadable { .. }) => {}
                Err(error) => {
                    tracing::debug!(task = %expiring.id, %error, "an expired task is called off later");
                    report.failed += 1;
                    again.push(expiring);
                }
            }
        }
        for expiring in again {
            record.expect(expiring);
        }
    }

    /// What was written after this time is left to the next pass.
    fn settled_before(&self) -> Timestamp {
        self.client().now().minus_millis(GRACE_MS)
    }
}
