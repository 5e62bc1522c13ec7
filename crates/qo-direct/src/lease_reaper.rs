//! Ends attempts whose lease has expired, and deletes stale lease entries.
//!
//! An idle bucket is not listed: [`super::activity`] shows whether tasks may be running. A check costs one LIST as long as no more
//! than a thousand tasks are running, and a GET per entry whose minute has come. A task whose lease is still valid is not read
//! again before the lease expires. With more running tasks a check costs one LIST per shard, and one more per thousand entries
//! whose minute has come.
//!
//! | the task of an entry | action |
//! | --- | --- |
//! | runs that attempt, and its lease has expired | end the attempt: the task is retried or fails |
//! | runs that attempt, and its lease is valid | none; if a renewal has moved the lease to another minute, write the entry of that minute and delete this one |
//! | runs another attempt | write the entry of that attempt and delete this one |
//! | is pending | write its ready entry, which a crash may have prevented, and delete this one |
//! | is finished, or does not exist | delete the entry |
//! | could not be read | none: a failed read says nothing about the task |
//!
//! An entry that is ahead of its task is left alone ([`super::repair`]). Any number of lease reapers may run concurrently: an attempt
//! is ended by compare-and-swap, so one of them wins, and everything else may be repeated.

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::StreamExt;
use qo_core::keys::{LEASES_PREFIX, leases_prefix};
use qo_core::{Action, Shard, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{PAGE_LIMIT_MAX, Page};
use qo_store::runtime::RuntimeExt;

use super::repair::{LeaseEntry, LeaseEntryState};
use super::{DirectEngine, StoredTask, lock};

/// For how many entries the expiry time is cached. The tasks of the others are read at every check.
const VALID_UNTIL_MAX: usize = 100_000;

/// The result of one check of the leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseReport {
    /// Entries whose minute had come.
    pub due: usize,
    /// Attempts that were ended because their lease had expired.
    pub expired: usize,
    /// Attempts whose lease is still valid.
    pub holding: usize,
    /// Stale entries, which are being deleted.
    pub stale: usize,
    /// Entries of changes that may be in flight; left alone.
    pub in_flight: usize,
    /// Tasks that another process changed at the same time.
    pub contended: usize,
    /// Tasks that could not be read or changed because the store failed; checked again next time.
    pub failed: usize,
    /// Tasks whose record cannot be parsed; the sweeper quarantines them.
    pub unreadable: usize,
    /// Objects below the prefix that are not lease entries; left alone.
    pub foreign: usize,
}

#[derive(Default)]
pub(super) struct LeaseReaper {
    /// The expiry time of valid leases, by entry. Their tasks are not read again before it.
    valid_until: Mutex<BTreeMap<String, Timestamp>>,
}

/// The result of checking one entry.
enum LeaseCheck {
    Expired,
    Holding,
    Stale,
    InFlight,
    Contended,
    Failed,
    Unreadable,
}

impl DirectEngine {
    /// Checks the leases as [`DirectEngine::check_leases`] does, if there may be any.
    pub(super) async fn check_leases_if_active(&self) -> Result<Option<LeaseReport>, EngineError> {
        if self.may_have_leases().await {
            return self.check_leases().await.map(Some);
        }
        self.promote_due().await?;
        Ok(None)
    }

    /// Checks all leases that may have expired, once, and promotes due tasks to the ready index.
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
        self.record_lease_list(at, page.entries.is_empty());
        let now = self.conservative_now();
        lock(&self.shared.lease_reaper.valid_until).retain(|_, until| *until >= now);
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

    /// Checks the due entries of a page. Returns whether all entries were due, so that the next page may have more.
    async fn check_page(&self, page: &Page, report: &mut LeaseReport) -> bool {
        let minute = self.conservative_now().minute();
        let mut all_due = true;
        let mut due = Vec::new();
        for listed in &page.entries {
            match LeaseEntry::new(&listed.key, listed.last_modified) {
                None => report.foreign += 1,
                Some(entry) if entry.minute > minute => all_due = false,
                Some(_) if self.shared.index_gc.is_pending(&listed.key) => {}
                Some(entry) => due.push((listed.key.clone(), entry)),
            }
        }
        report.due += due.len();
        let mut outcomes = futures_util::stream::iter(due)
            .map(|(key, entry)| async move { self.check_entry(&key, entry).await })
            .buffer_unordered(self.config().concurrency);
        while let Some(outcome) = outcomes.next().await {
            let count = match outcome {
                LeaseCheck::Expired => &mut report.expired,
                LeaseCheck::Holding => &mut report.holding,
                LeaseCheck::Stale => &mut report.stale,
                LeaseCheck::InFlight => &mut report.in_flight,
                LeaseCheck::Contended => &mut report.contended,
                LeaseCheck::Failed => &mut report.failed,
                LeaseCheck::Unreadable => &mut report.unreadable,
            };
            *count += 1;
        }
        all_due
    }

    async fn check_entry(&self, key: &str, entry: LeaseEntry) -> LeaseCheck {
        let valid_until = lock(&self.shared.lease_reaper.valid_until)
            .get(key)
            .copied();
        if valid_until.is_some_and(|until| until >= self.conservative_now()) {
            return LeaseCheck::Holding;
        }
        let stored = match self.read(entry.id).await {
            Ok(stored) => stored,
            // The store reports that the task does not exist.
            Err(error) if error.is_not_found() => return self.discard_entry(key),
            Err(EngineError::Unreadable { .. }) => return LeaseCheck::Unreadable,
            Err(error) => return failed(&entry, &error),
        };
        match entry.compare(&stored.task, self.conservative_now()) {
            LeaseEntryState::Expired => self.expire(&entry, stored).await,
            LeaseEntryState::Valid(until) => {
                let mut valid_until = lock(&self.shared.lease_reaper.valid_until);
                if valid_until.len() < VALID_UNTIL_MAX {
                    valid_until.insert(key.to_owned(), until);
                }
                LeaseCheck::Holding
            }
            LeaseEntryState::Stale => match self.restore_entry(&stored.task).await {
                Ok(()) => self.discard_entry(key),
                Err(error) => failed(&entry, &error),
            },
            LeaseEntryState::InFlight => LeaseCheck::InFlight,
        }
    }

    /// Ends an attempt. Tries once: if another process changed the task, that change takes precedence.
    async fn expire(&self, entry: &LeaseEntry, stored: StoredTask) -> LeaseCheck {
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
                    "ended an attempt whose lease had expired"
                );
                LeaseCheck::Expired
            }
            Err(EngineError::Store(StoreError::Conflict { .. }) | EngineError::Rejected(_)) => {
                LeaseCheck::Contended
            }
            Err(error) => failed(entry, &error),
        }
    }

    fn discard_entry(&self, key: &str) -> LeaseCheck {
        self.shared.index_gc.enqueue([key]);
        LeaseCheck::Stale
    }

    /// The time against which lease expiry is checked: the earliest time that the store's clock may show, less the margin.
    pub(super) fn conservative_now(&self) -> Timestamp {
        self.client()
            .earliest_now()
            .minus_millis(self.config().lease_margin_ms)
    }
}

fn failed(entry: &LeaseEntry, error: &EngineError) -> LeaseCheck {
    tracing::debug!(task = %entry.id, %error, "could not check a lease; trying again later");
    LeaseCheck::Failed
}
