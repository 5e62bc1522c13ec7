//! Purges finished tasks after the retention time, if one is set: that of their queue, or else that of this process.
//!
//! The pass over the tasks sees by the time of a record's last write that the shortest retention time may have passed, reads the record, and
//! purges the task ([`super::super::purge`]) if it is finished and its idempotency key is no longer needed. One step of the sweep purges a
//! bounded number of tasks; the rest are left to the next pass. A crash at any point leaves a finished task, an interrupted purge, which the
//! next pass repeats, or nothing.
//!
//! A LIST does not show the queue of a task, so a record that another queue keeps longer is read too. The process remembers until when it
//! need not be read again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::task::KeyHold;
use qo_core::{QueueName, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::client::Entry;

use super::super::{DirectEngine, lock};
use super::SweepReport;
use super::tasks::version_hash;

/// The maximum number of tasks that one step purges.
const PURGES_MAX: usize = 500;
/// How many tasks are purged at once. Each purge takes several requests.
const CONCURRENCY: usize = 8;
/// How many records are remembered. Others are read again in each pass.
const KEPT_MAX: usize = 200_000;

/// How long finished tasks are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Retentions {
    /// For queues whose settings do not say, in milliseconds; `None` means forever.
    default_ms: Option<u64>,
    queues_ms: BTreeMap<QueueName, u64>,
}

impl Retentions {
    fn shortest_ms(&self) -> Option<u64> {
        let queues = self.queues_ms.values().copied();
        queues.chain(self.default_ms).min()
    }

    fn of_ms(&self, queue: &QueueName) -> Option<u64> {
        self.queues_ms.get(queue).copied().or(self.default_ms)
    }

    /// When a task may be purged, if it has settled. A key without an end is valid as long as its task is kept, and does not keep it.
    fn end_of(&self, task: &Task) -> Option<Timestamp> {
        let retention_ms = self.of_ms(&task.queue).filter(|_| task.is_settled())?;
        let end = task.updated_at.plus_millis(retention_ms);
        let held = task.idempotency_hold == KeyHold::Kept;
        let until = task.idempotency_until.filter(|_| held);
        Some(end.max(until.unwrap_or(end)))
    }
}

/// Old records that need not be read before a time: hashes of their versions.
#[derive(Default)]
pub(super) struct KeptRecords {
    /// The retentions for which the times hold.
    retentions: Retentions,
    until: BTreeMap<u64, Timestamp>,
}

impl KeptRecords {
    fn begin(&mut self, retentions: &Retentions) {
        if self.retentions != *retentions {
            self.retentions = retentions.clone();
            self.until.clear();
        }
    }

    fn keep(&mut self, version: u64, until: Timestamp) {
        if self.until.len() >= KEPT_MAX {
            self.until.clear();
        }
        self.until.insert(version, until);
    }

    fn is_kept(&self, version: u64, now: Timestamp) -> bool {
        self.until.get(&version).is_some_and(|until| now < *until)
    }
}

impl DirectEngine {
    /// Purges the finished tasks of a page whose retention time has passed.
    pub(super) async fn purge_old(
        &self,
        entries: &[Entry],
        default: Option<Duration>,
        report: &mut SweepReport,
    ) {
        let default_ms = default.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let retentions = match self.retentions().await {
            Ok(queues_ms) => Retentions {
                default_ms,
                queues_ms,
            },
            Err(error) => {
                tracing::debug!(%error, "cannot read how long finished tasks are kept; trying again in the next pass");
                report.failed += 1;
                return;
            }
        };
        let Some(shortest_ms) = retentions.shortest_ms() else {
            return;
        };
        let now = self.client().now();
        let before = now.minus_millis(shortest_ms);
        let left = PURGES_MAX.saturating_sub(report.purged);
        let old: Vec<(TaskId, u64)> = {
            let mut kept = lock(&self.shared.sweeper.kept);
            kept.begin(&retentions);
            let old = entries.iter().filter(|entry| entry.last_modified < before);
            old.filter_map(|entry| match entry.key.parse() {
                Ok(Key::Task(id)) => Some((id, version_hash(entry))),
                _ => None,
            })
            .filter(|(_, version)| !kept.is_kept(*version, now))
            .take(left)
            .collect()
        };
        let retentions = &retentions;
        let mut purges =
            futures_util::stream::iter(old)
                .map(|(id, version)| async move {
                    (id, version, self.purge_if_old(id, retentions).await)
                })
                .buffer_unordered(CONCURRENCY);
        while let Some((id, version, result)) = purges.next().await {
            match result {
                Ok(None) => report.purged += 1,
                Ok(Some(until)) => lock(&self.shared.sweeper.kept).keep(version, until),
                // It was changed, replayed or purged in the meantime, or cannot be read.
                Err(EngineError::Rejected(_) | EngineError::Unreadable { .. }) => {}
                Err(error) => {
                    tracing::debug!(task = %id, %error, "could not purge a finished task; trying again in the next pass");
                    report.failed += 1;
                }
            }
        }
    }

    /// Purges a task whose time has come. Otherwise returns until when it is kept, if it does not change.
    async fn purge_if_old(
        &self,
        id: TaskId,
        retentions: &Retentions,
    ) -> Result<Option<Timestamp>, EngineError> {
        let task = self.read(id).await?.task;
        let end = retentions.end_of(&task).unwrap_or(Timestamp::MAX);
        if self.client().now() <= end {
            return Ok(Some(end));
        }
        self.purge_task(id).await?;
        Ok(None)
    }
}
