//! Applies the lifecycle rules.
//!
//! A bucket in the cloud does this by itself. So does a file: a process that has had it open for a minute applies the
//! rules after its next write, and then once an hour while it writes. A file that nobody writes to does not grow, and a
//! command that ends within a minute leaves the work to others. Several processes may do it at once.
//!
//! Candidates are found by reading pages of keys, which does not block writers. They are removed in small transactions
//! that check again, so objects written in the meantime stay. A crash between two transactions leaves the remaining
//! candidates for the next time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qo_core::Timestamp;
use rusqlite::{Connection, params};

use super::write::WriteTransaction;
use super::{Inner, SqliteStore};
use crate::admin::{BucketAdmin, LifecycleRule};
use crate::error::StoreError;

/// The number of rows read, and at most removed, at once.
const PAGE_LENGTH: usize = 1000;

/// The maximum number of rows that one call removes.
const REMOVALS_MAX: u64 = 10_000;

/// How long a process has a file open before it applies the rules for the first time.
const FIRST_AFTER: Duration = Duration::from_mins(1);

/// How often a process applies the rules while it writes.
const INTERVAL: Duration = Duration::from_hours(1);

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The result of [`SqliteStore::apply_lifecycle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LifecycleReport {
    /// The number of expired objects.
    pub expired_objects: u64,
    /// The number of expired noncurrent versions.
    pub expired_versions: u64,
    /// The number of removed delete markers that hid no version.
    pub expired_delete_markers: u64,
    /// Whether everything was removed. If not, call again.
    pub is_complete: bool,
}

impl LifecycleReport {
    fn removals(&self) -> u64 {
        self.expired_objects + self.expired_versions + self.expired_delete_markers
    }
}

/// What a rule removes. Each is one pass over the keys with the rule's prefix.
#[derive(Debug, Clone, Copy)]
enum Pass {
    Objects { before_ms: i64 },
    Versions { before_ms: i64 },
    DeleteMarkers,
}

/// A row that a pass visited, and whether to remove it.
struct Candidate {
    key: String,
    generation: i64,
    is_due: bool,
}

/// When a process applies the rules the next time.
#[derive(Debug)]
pub(super) struct LifecycleTimer {
    /// By the monotonic clock, in milliseconds.
    due_ms: AtomicU64,
}

impl LifecycleTimer {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            due_ms: AtomicU64::new(millis(now + FIRST_AFTER)),
        }
    }

    /// Returns true to one caller when it is time, and starts the next interval.
    fn is_due(&self, now: Duration) -> bool {
        let due_ms = self.due_ms.load(Ordering::Relaxed);
        let next_ms = millis(now + INTERVAL);
        millis(now) >= due_ms
            && self
                .due_ms
                .compare_exchange(due_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Inner {
    /// Applies the lifecycle rules in the background, if it is time.
    pub(super) fn apply_lifecycle_if_due(self: &Arc<Self>) {
        if !self.lifecycle.is_due(self.runtime.monotonic()) {
            return;
        }
        // The background work must not keep a file open that its owner has closed.
        let inner = Arc::downgrade(self);
        self.runtime.spawn(Box::pin(async move {
            while let Some(inner) = inner.upgrade() {
                let now = inner.runtime.now();
                match (SqliteStore { inner }).apply_lifecycle(now).await {
                    Ok(report) if report.is_complete => return,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "could not delete old versions; trying again in an hour");
                        return;
                    }
                }
            }
        }));
    }
}

impl SqliteStore {
    /// Applies the lifecycle rules as of `now`.
    ///
    /// An expired object is deleted, so a versioned database keeps it as a version. `abort_multipart_days` has no
    /// effect, because unfinished uploads leave nothing in the file. One call removes up to 10,000 rows.
    pub async fn apply_lifecycle(&self, now: Timestamp) -> Result<LifecycleReport, StoreError> {
        let mut report = LifecycleReport::default();
        for rule in self.lifecycle().await? {
            for pass in passes(&rule, now) {
                if !self.apply_pass(&rule.prefix, pass, &mut report).await? {
                    return Ok(report);
                }
            }
        }
        report.is_complete = true;
        Ok(report)
    }

    /// Returns whether the pass is complete.
    async fn apply_pass(
        &self,
        prefix: &str,
        pass: Pass,
        report: &mut LifecycleReport,
    ) -> Result<bool, StoreError> {
        let mut after = (prefix.to_owned(), 0);
        loop {
            let from = after.clone();
            let page = self
                .admin_read(prefix, move |connection| {
                    candidates(connection, pass, &from.0, from.1)
                })
                .await?;
            let is_last =
                page.len() < PAGE_LENGTH || page.iter().any(|row| !row.key.starts_with(prefix));
            if let Some(last) = page.last() {
                after = (last.key.clone(), last.generation);
            }
            let due: Vec<_> = page
                .into_iter()
                .filter(|row| row.is_due && row.key.starts_with(prefix))
                .collect();
            if !due.is_empty() {
                let removed = self
                    .admin_write(prefix, move |tx| remove(tx, pass, &due))
                    .await?;
                match pass {
                    Pass::Objects { .. } => report.expired_objects += removed,
                    Pass::Versions { .. } => report.expired_versions += removed,
                    Pass::DeleteMarkers => report.expired_delete_markers += removed,
                }
            }
            if is_last {
                return Ok(true);
            }
            if report.removals() >= REMOVALS_MAX {
                return Ok(false);
            }
        }
    }
}

/// In this order, each pass can remove what the previous one produced.
fn passes(rule: &LifecycleRule, now: Timestamp) -> Vec<Pass> {
    let before_ms = |days: u32| {
        now.minus_millis(u64::from(days).saturating_mul(DAY_MS))
            .as_millis()
    };
    let mut passes = Vec::new();
    if let Some(days) = rule.expire_days {
        passes.push(Pass::Objects {
            before_ms: before_ms(days),
        });
    }
    if let Some(days) = rule.expire_noncurrent_days {
        passes.push(Pass::Versions {
            before_ms: before_ms(days),
        });
    }
    if rule.expire_delete_markers {
        passes.push(Pass::DeleteMarkers);
    }
    passes
}

/// The next rows in key order. The first call starts before the first key with the prefix.
fn candidates(
    connection: &Connection,
    pass: Pass,
    key: &str,
    generation: i64,
) -> rusqlite::Result<Vec<Candidate>> {
    let (sql, before_ms) = match pass {
        Pass::Objects { before_ms } => (
            "SELECT key, generation, last_modified_ms <= ?4 FROM objects
             WHERE (key, generation) > (?1, ?2) ORDER BY key LIMIT ?3",
            before_ms,
        ),
        Pass::Versions { before_ms } => (
            "SELECT key, generation, coalesce(noncurrent_since_ms <= ?4, 0) FROM versions
             WHERE (key, generation) > (?1, ?2) ORDER BY key, generation LIMIT ?3",
            before_ms,
        ),
        Pass::DeleteMarkers => (
            "SELECT key, generation, noncurrent_since_ms IS NULL AND ?4 = 0 AND NOT EXISTS (
                SELECT 1 FROM versions AS other
                WHERE other.key = versions.key AND other.generation <> versions.generation)
             FROM versions
             WHERE (key, generation) > (?1, ?2) ORDER BY key, generation LIMIT ?3",
            0,
        ),
    };
    let page_length = i64::try_from(PAGE_LENGTH).unwrap_or(i64::MAX);
    connection
        .prepare_cached(sql)?
        .query_map(params![key, generation, page_length, before_ms], |row| {
            Ok(Candidate {
                key: row.get(0)?,
                generation: row.get(1)?,
                is_due: row.get(2)?,
            })
        })?
        .collect()
}

/// Removes the rows that still exist. A version or marker is identified by its generation, so it cannot have changed.
fn remove(tx: &mut WriteTransaction<'_>, pass: Pass, due: &[Candidate]) -> rusqlite::Result<u64> {
    let mut removed = 0;
    for row in due {
        let was_there = match pass {
            Pass::Objects { .. } => tx.delete_generation(&row.key, row.generation)?,
            Pass::Versions { .. } => tx.delete_noncurrent(&row.key, row.generation)?,
            Pass::DeleteMarkers => tx.delete_version(&row.key, row.generation)?,
        };
        removed += u64::from(was_there);
    }
    Ok(removed)
}
