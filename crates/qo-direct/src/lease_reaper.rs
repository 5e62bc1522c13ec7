//! Ends attempts whose lease has run out, and clears away lease entries that are no longer true.
//!
//! An idle bucket is not looked at: [`super::activity`] says whether anything can be running. One look costs one LIST as long as no more than a thousand tasks are running, and a GET per entry whose minute has come;
//! a task that turns out to have time is not read again before that time. With more running tasks it is one LIST per shard,
//! and one more per thousand entries whose minute has come.
//!
//! | the task behind an entry | what is done |
//! | --- | --- |
//! | is running that attempt, and its lease has run out | the attempt is ended: the task is retried, or has failed |
//! | is running that attempt, until later | nothing, or, if a renewal has moved it to another minute, the right entry is written and this one deleted |
//! | is running another attempt | that one's entry is written, and this one deleted |
//! | is pending | its ready entry is written, because a crash may have prevented that, and this one deleted |
//! | has come to its end, or is not there | the entry is deleted |
//! | could not be read | nothing: a failed read says nothing about a task |
//!
//! An entry that is ahead of its task is left alone ([`super::repair`]). Any number of monitors may look at once: the end of
//! an attempt is a compare-and-swap, of which one wins, and everything else may be done twice.

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::StreamExt;
use qo_core::keys::{LEASES_PREFIX, leases_prefix};
use qo_core::{Action, Shard, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{PAGE_LIMIT_MAX, Page};
use qo_store::runtime::RuntimeExt;

use super::repair::{LeaseEntry, LeaseVerdict};
use super::{DirectEngine, Stored, lock};

/// Of how many entries it is remembered until when they hold. The others are read again.
const WAITING_MAX: usize = 100_000;

/// What a look at the leases has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseReport {
    /// Entries whose minute had come.
    pub due: usize,
    /// Attempts that were ended because their lease had run out.
    pub expired: usize,
    /// Attempts that have time left.
    pub holding: usize,
    /// Entries that were no longer true and are being deleted.
    pub stale: usize,
    /// Entries of changes that may be in flight, left alone.
    pub in_flight: usize,
    /// Tasks that somebody else changed at the same time.
    pub contended: usize,
    /// Tasks that could not be read, or not be changed, because the store did not answer; looked at again next time.
    pub failed: usize,
    /// Tasks whose record makes no sense; the sweeper puts them under quarantine.
    pub unreadable: usize,
    /// Objects in the index that are no entries, left alone.
    pub foreign: usize,
}

#[derive(Default)]
pub(super) struct LeaseReaper {
    /// Until when the leases behind entries hold, so that they are not read again before.
    waiting: Mutex<BTreeMap<String, Timestamp>>,
}

/// What came of one entry.
enum Checked {
    Expired,
    Holding,
    Stale,
    InFlight,
    Contended,
    Failed,
    Unreadable,
}

impl DirectEngine {
    /// Looks at the leases as [`DirectEngine::check_leases`] does, if there can be any.
    pub(super) async fn check_leases_if_active(&self) -> Result<Option<LeaseReport>, EngineError> {
        if self.may_be_running().await {
            return self.check_leases().await.map(Some);
        }
        self.promote_due().await?;
        Ok(None)
    }

    /// Looks once at the leases that may have run out, and moves tasks that have become due to the ready index.
    pub async fn check_leases(&self) -> Result<LeaseReport, EngineError> {
        let mut report = LeaseReport::default();
        let at = self.runtime().monotonic();
        let page = self
            .client()
            .page(LEASES_PREFIX, None, PAGE_LIMIT_MAX)
            .await?;
        if page.next.is_none() {
            self.check_page(&page, &mut report).await;
        } else {
            for shard in Shard::all() {
                self.check_shard(shard, &mut report).await?;
            }
        }
        self.leases_were_listed(at, page.entries.is_empty());
        let now = self.judged_now();
        lock(&self.shared.lease_reaper.waiting).retain(|_, holds_until| *holds_until >= now);
        self.promote_due().await?;
        Ok(report)
    }

    async fn check_shard(&self, shard: Shard, report: &mut LeaseReport) -> Result<(), EngineError> {
        let prefix = leases_prefix(shard);
        let mut after = None;
        loop {
            let page = self
                .client()
                .page(&prefix, after.as_deref(), PAGE_LIMIT_MAX)
                .await?;
            let all_due = self.check_page(&page, report).await;
            match page.next {
                Some(next) if all_due => after = Some(next),
                _ => return Ok(()),
            }
        }
    }

    /// Looks at what is due in a page. Tells whether all of it was, so that there may be more behind it.
    async fn check_page(&self, page: &Page, report: &mut LeaseReport) -> bool {
        let minute = self.judged_now().minute();
        let mut all_due = true;
        let mut due = Vec::new();
        for listed in &page.entries {
            match LeaseEntry::new(&listed.key, listed.last_modified) {
                None => report.foreign += 1,
                Some(entry) if entry.minute > minute => all_due = false,
                Some(_) if self.shared.index_gc.is_sweeping(&listed.key) => {}
                Some(entry) => due.push((listed.key.clone(), entry)),
            }
        }
        report.due += due.len();
        let mut checked = futures_util::stream::iter(due)
            .map(|(key, entry)| async move { self.check_entry(&key, entry).await })
            .buffer_unordered(self.config().concurrency);
        while let Some(checked) = checked.next().await {
            let count = match checked {
                Checked::Expired => &mut report.expired,
                Checked::Holding => &mut report.holding,
                Checked::Stale => &mut report.stale,
                Checked::InFlight => &mut report.in_flight,
                Checked::Contended => &mut report.contended,
                Checked::Failed => &mut report.failed,
                Checked::Unreadable => &mut report.unreadable,
            };
            *count += 1;
        }
        all_due
    }

    async fn check_entry(&self, key: &str, entry: LeaseEntry) -> Checked {
        let holds_until = lock(&self.shared.lease_reaper.waiting).get(key).copied();
        if holds_until.is_some_and(|until| until >= self.judged_now()) {
            return Checked::Holding;
        }
        let stored = match self.read(entry.id).await {
            Ok(stored) => stored,
            // The store has said that there is no such task.
            Err(error) if error.is_not_found() => return self.clear(key),
            Err(EngineError::Unreadable { .. }) => return Checked::Unreadable,
            Err(error) => return failed(&entry, &error),
        };
        match entry.judge(&stored.task, self.judged_now()) {
            LeaseVerdict::Expired => self.expire(&entry, stored).await,
            LeaseVerdict::Holds(until) => {
                let mut waiting = lock(&self.shared.lease_reaper.waiting);
                if waiting.len() < WAITING_MAX {
                    waiting.insert(key.to_owned(), until);
                }
                Checked::Holding
            }
            LeaseVerdict::Stale => match self.restore_entry(&stored.task).await {
                Ok(()) => self.clear(key),
                Err(error) => failed(&entry, &error),
            },
            LeaseVerdict::InFlight => Checked::InFlight,
        }
    }

    /// Ends an attempt. It is tried once: whoever else has changed the task meanwhile knew what to do.
    async fn expire(&self, entry: &LeaseEntry, stored: Stored) -> Checked {
        let worker = stored.task.worker_id.clone();
        let action = Action::ExpireLease {
            jitter: self.jitter(),
        };
        match self
            .try_change(stored, self.runtime().new_op_id(), action)
            .await
        {
            Ok(changed) => {
                tracing::info!(
                    task = %entry.id,
                    attempt = entry.attempt,
                    worker = worker.as_ref().map(tracing::field::display),
                    status = %changed.task.status,
                    "ended an attempt whose lease had run out"
                );
                Checked::Expired
            }
            Err(EngineError::Store(StoreError::Conflict { .. }) | EngineError::Rejected(_)) => {
                Checked::Contended
            }
            Err(error) => failed(entry, &error),
        }
    }

    fn clear(&self, key: &str) -> Checked {
        self.shared.index_gc.sweep([key]);
        Checked::Stale
    }

    /// The time by which leases are judged: the earliest that the store's can be, less the margin.
    pub(super) fn judged_now(&self) -> Timestamp {
        self.client()
            .earliest_now()
            .minus_millis(self.config().lease_margin_ms)
    }
}

fn failed(entry: &LeaseEntry, error: &EngineError) -> Checked {
    tracing::debug!(task = %entry.id, %error, "a lease is looked at again later");
    Checked::Failed
}
