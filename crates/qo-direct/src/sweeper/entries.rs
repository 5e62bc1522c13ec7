//! Walks an index and deletes stale entries.
//!
//! A stale entry costs only the read that finds it stale, and workers and the lease reaper find most of them. The sweeper finds the
//! rest: entries in queues without workers, and entries of long leases.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::{IndexEntry, Key};
use qo_engine::EngineError;
use qo_store::client::Entry;

use super::super::DirectEngine;
use super::super::repair::{LeaseEntry, LeaseEntryState, is_valid};
use super::SweepReport;
use super::cursor::SweepRecord;

/// A listed index entry.
enum ListedEntry {
    Pending(IndexEntry),
    Lease(LeaseEntry),
}

impl ListedEntry {
    fn new(entry: &Entry) -> Option<Self> {
        match entry.key.parse() {
            Ok(Key::Ready(entry) | Key::Later(entry)) => Some(Self::Pending(entry)),
            Ok(Key::Lease { .. }) => {
                LeaseEntry::new(&entry.key, entry.last_modified).map(Self::Lease)
            }
            _ => None,
        }
    }

    fn id(&self) -> TaskId {
        match self {
            Self::Pending(entry) => entry.id,
            Self::Lease(entry) => entry.id,
        }
    }
}

/// The result of comparing an entry with its task.
enum EntryCheck {
    Valid,
    Stale,
    Failed,
}

impl DirectEngine {
    /// Sweeps one page of an index.
    pub(super) async fn sweep_entries(
        &self,
        entries: &[Entry],
        record: &SweepRecord,
        report: &mut SweepReport,
    ) {
        let cutoff = self.grace_cutoff();
        let minute = self.conservative_now().minute();
        let mut due = Vec::new();
        for entry in entries {
            match ListedEntry::new(entry) {
                None => report.left += 1,
                // The lease reaper checks these.
                Some(ListedEntry::Lease(lease)) if lease.minute <= minute => {}
                Some(listed)
                    if entry.last_modified <= cutoff
                        && record.is_compared(listed.id())
                        && !self.shared.index_gc.is_pending(&entry.key) =>
                {
                    due.push((entry.key.clone(), listed));
                }
                Some(_) => {}
            }
        }
        report.read += due.len();
        let mut checks = futures_util::stream::iter(due)
            .map(|(key, listed)| async move { (key, self.check_listed(&listed).await) })
            .buffer_unordered(self.config().concurrency);
        while let Some((key, check)) = checks.next().await {
            match check {
                EntryCheck::Valid => {}
                EntryCheck::Stale => {
                    self.shared.index_gc.enqueue([key]);
                    report.stale += 1;
                }
                EntryCheck::Failed => report.failed += 1,
            }
        }
    }

    async fn check_listed(&self, listed: &ListedEntry) -> EntryCheck {
        let task = match self.read(listed.id()).await {
            Ok(stored) => stored.task,
            // The store reports that the task does not exist.
            Err(error) if error.is_not_found() => return EntryCheck::Stale,
            // The task will be quarantined and then no longer exist.
            Err(EngineError::Unreadable { .. }) => return EntryCheck::Valid,
            Err(error) => {
                tracing::debug!(task = %listed.id(), %error, "could not check an index entry; trying again later");
                return EntryCheck::Failed;
            }
        };
        match listed {
            ListedEntry::Pending(entry) if is_valid(entry, &task) => EntryCheck::Valid,
            ListedEntry::Pending(_) => EntryCheck::Stale,
            ListedEntry::Lease(entry) => match entry.compare(&task, self.conservative_now()) {
                LeaseEntryState::Stale => match self.restore_entry(&task).await {
                    Ok(()) => EntryCheck::Stale,
                    Err(_) => EntryCheck::Failed,
                },
                LeaseEntryState::Expired
                | LeaseEntryState::Valid(_)
                | LeaseEntryState::InFlight => EntryCheck::Valid,
            },
        }
    }
}
