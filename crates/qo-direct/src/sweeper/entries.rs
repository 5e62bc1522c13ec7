//! Walks an index: deletes the entries that are no longer true.
//!
//! Stale entries do no harm but the read that finds them out, and workers and the monitor find most of them. These are the
//! rest: in queues that nobody serves, and of leases that would have run for long.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::{IndexEntry, Key};
use qo_engine::EngineError;
use qo_store::client::Entry;

use super::super::DirectEngine;
use super::super::repair::{LeaseEntry, LeaseVerdict, is_true};
use super::SweepReport;
use super::cursor::SweepRecord;

/// An index entry.
enum Listed {
    Pending(IndexEntry),
    Lease(LeaseEntry),
}

impl Listed {
    fn new(entry: &Entry) -> Option<Self> {
        match entry.key.parse() {
            Ok(Key::Ready(found) | Key::Later(found)) => Some(Self::Pending(found)),
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

/// What came of looking at an entry.
enum Compared {
    True,
    Stale,
    Failed,
}

impl DirectEngine {
    /// Looks at a page of an index.
    pub(super) async fn sweep_entries(
        &self,
        entries: &[Entry],
        record: &mut SweepRecord,
        report: &mut SweepReport,
    ) {
        report.listed += entries.len();
        record.entries = record.entries.saturating_add(entries.len() as u64);
        let settled_before = self.settled_before();
        let minute = self.judged_now().minute();
        let mut due = Vec::new();
        for entry in entries {
            match Listed::new(entry) {
                None => report.left += 1,
                // The monitor looks at these.
                Some(Listed::Lease(lease)) if lease.minute <= minute => {}
                Some(listed)
                    if entry.last_modified <= settled_before
                        && record.is_compared(listed.id())
                        && !self.shared.index_gc.is_sweeping(&entry.key) =>
                {
                    due.push((entry.key.clone(), listed));
                }
                Some(_) => {}
            }
        }
        report.read += due.len();
        let mut compared = futures_util::stream::iter(due)
            .map(|(key, listed)| async move { (key, self.compare(&listed).await) })
            .buffer_unordered(self.config().concurrency);
        while let Some((key, compared)) = compared.next().await {
            match compared {
                Compared::True => {}
                Compared::Stale => {
                    self.shared.index_gc.sweep([key]);
                    report.stale += 1;
                }
                Compared::Failed => report.failed += 1,
            }
        }
    }

    async fn compare(&self, listed: &Listed) -> Compared {
        let task = match self.read(listed.id()).await {
            Ok(stored) => stored.task,
            // The store has said that there is no such task.
            Err(error) if error.is_not_found() => return Compared::Stale,
            // It will be under quarantine, and not be found after that.
            Err(EngineError::Unreadable { .. }) => return Compared::True,
            Err(error) => {
                tracing::debug!(task = %listed.id(), %error, "an index entry is compared later");
                return Compared::Failed;
            }
        };
        match listed {
            Listed::Pending(entry) if is_true(entry, &task) => Compared::True,
            Listed::Pending(_) => Compared::Stale,
            Listed::Lease(entry) => match entry.judge(&task, self.judged_now()) {
                LeaseVerdict::Stale => match self.restore_entry(&task).await {
                    Ok(()) => Compared::Stale,
                    Err(_) => Compared::Failed,
                },
                LeaseVerdict::Expired | LeaseVerdict::Holds(_) | LeaseVerdict::InFlight => {
                    Compared::True
                }
            },
        }
    }
}
