//! Claiming tasks.
//!
//! A candidate from the index is read, checked, and swapped to running with the tag that was read. Of all claimers, one wins. The
//! others have spent a GET and a PUT and try the next candidate. Stale index entries found on the way are deleted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{IndexEntry, Key, READY_PREFIX};
use qo_core::limits::{CLAIM_MAX_TASKS, LEASE_MAX_MS};
use qo_core::{Action, Rejection, Shard, Status, Task, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::ClaimRequest;
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::change::unswappable;
use super::ready_cache::{ReadyListName, take_most_urgent};
use super::{DirectEngine, IndexMode, StoredTask};

/// The result of trying to claim a candidate.
pub(super) enum ClaimOutcome {
    /// The task was claimed.
    Claimed(Box<Task>),
    /// The task cannot be claimed: another worker has it, or the index entry is stale.
    Unavailable,
    /// The task is not due yet by this process's clock, which may be a little behind the submitter's.
    NotDue(Timestamp),
    /// The store failed.
    Failed(EngineError),
}

impl DirectEngine {
    pub(super) async fn claim_waiting(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<Task>, EngineError> {
        let claimed = self.claim_until(request).await?;
        if claimed.is_empty() && request.max > 0 && !request.queues.is_empty() {
            let paused = self.paused().await?;
            if request.queues.iter().all(|queue| paused.contains(queue)) {
                let queues = request.queues.clone();
                return Err(EngineError::QueuePaused { queues });
            }
        }
        Ok(claimed)
    }

    /// Claims ready tasks, or waits until some become ready or the wait time of the request ends.
    async fn claim_until(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let lease_ms = request.lease_ms.unwrap_or(self.config().lease_ms);
        if !(1..=LEASE_MAX_MS).contains(&lease_ms) {
            return Err(Rejection::OutOfBounds {
                field: "lease_ms",
                allowed: "1 ms to 30 days",
            }
            .into());
        }
        if request.max == 0 {
            return Ok(Vec::new());
        }
        let deadline = self.runtime().monotonic() + Duration::from_millis(request.wait_ms);
        loop {
            let epoch = self.shared.signal.epoch();
            let (claimed, next_check) = self.claim_now(request).await?;
            let left = deadline.saturating_sub(self.runtime().monotonic());
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            if left.is_zero() {
                // A caller that never waits would otherwise see tasks of other submitters only after the fallback interval.
                self.shared.signal.poll().await;
                if self.shared.signal.epoch() == epoch {
                    return Ok(claimed);
                }
                return Ok(self.claim_now(request).await?.0);
            }
            let due_in = next_check.map(|due| due.since(self.client().now()));
            let limit = left.min(due_in.unwrap_or(left).max(Duration::from_millis(1)));
            self.shared.signal.wait(epoch, limit).await;
        }
    }

    /// Claims tasks without waiting. Also returns when the next check may find more, without any signal.
    async fn claim_now(
        &self,
        request: &ClaimRequest,
    ) -> Result<(Vec<Task>, Option<Timestamp>), EngineError> {
        let mode = self.config().index_mode;
        if mode == IndexMode::LogScan {
            let claimed = self.claim_by_scan(request).await?;
            let idle = self.scan_idle_time(request).await;
            let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
            return Ok((claimed, Some(self.client().now().plus_millis(idle_ms))));
        }
        let (claimed, next_check) = self.claim_by_index(request).await?;
        if mode == IndexMode::Hybrid
            && claimed.is_empty()
            && self.is_fallback_scan_due(request).await
        {
            return Ok((self.claim_by_scan(request).await?, next_check));
        }
        Ok((claimed, next_check))
    }

    async fn claim_by_index(
        &self,
        request: &ClaimRequest,
    ) -> Result<(Vec<Task>, Option<Timestamp>), EngineError> {
        self.promote_due().await?;
        let max = request.max.min(CLAIM_MAX_TASKS);
        let shards: Arc<[Shard]> = request.shards.clone().into();
        let names = self.ready_list_names(request, &shards).await?;
        let mut claimed = Vec::new();
        loop {
            let candidates = self
                .take_candidates(&names, request, max - claimed.len())
                .await?;
            if candidates.is_empty() {
                // Two events come without a signal: a task becomes due, or a task reserved for another worker may be stolen.
                let next = [self.shared.scheduled.next_due(), self.next_relist(&names)];
                return Ok((claimed, next.into_iter().flatten().min()));
            }
            self.announce_claims().await;
            let shards = &shards;
            let outcomes: Vec<(ReadyListName, ClaimOutcome)> =
                futures_util::stream::iter(candidates)
                    .map(|entry| async move {
                        let name = ReadyListName {
                            queue: entry.queue.clone(),
                            task_type: entry.task_type.clone(),
                            shards: Arc::clone(shards),
                        };
                        (name, self.try_claim(entry, request).await)
                    })
                    .buffer_unordered(self.config().concurrency)
                    .collect()
                    .await;
            let mut failure = None;
            for (name, outcome) in outcomes {
                match outcome {
                    ClaimOutcome::Claimed(task) => claimed.push(*task),
                    ClaimOutcome::Unavailable => {}
                    ClaimOutcome::NotDue(at) => self.relist_at(&name, at),
                    ClaimOutcome::Failed(error) => {
                        self.relist_soon(&name);
                        failure = Some(error);
                    }
                }
            }
            claimed.sort_by_key(|task| (task.priority, task.available_at));
            match failure {
                // Claimed tasks are running and must be returned, even if other claims failed.
                Some(error) if claimed.is_empty() => return Err(error),
                Some(_) => return Ok((claimed, None)),
                None if claimed.len() >= max => return Ok((claimed, None)),
                None => {}
            }
        }
    }

    /// Takes candidates from all ready lists, most urgent first.
    async fn take_candidates(
        &self,
        names: &[ReadyListName],
        request: &ClaimRequest,
        count: usize,
    ) -> Result<Vec<IndexEntry>, EngineError> {
        let lists = futures_util::future::try_join_all(
            names
                .iter()
                .map(|name| self.ready_list(name, &request.worker)),
        )
        .await?;
        // Entries that are not taken stay cached for the next claim.
        Ok(take_most_urgent(&lists, count))
    }

    /// The queues and types to claim from. If the request does not name them, they are listed from the index.
    async fn ready_list_names(
        &self,
        request: &ClaimRequest,
        shards: &Arc<[Shard]>,
    ) -> Result<Vec<ReadyListName>, EngineError> {
        let paused = self.paused().await?;
        let queues = if request.queues.is_empty() {
            self.client()
                .folders(READY_PREFIX)
                .await?
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect()
        } else {
            request.queues.clone()
        };
        let mut names = Vec::new();
        for queue in queues.into_iter().filter(|queue| !paused.contains(queue)) {
            let types = if request.types.is_empty() {
                let folders = self
                    .client()
                    .folders(&format!("{READY_PREFIX}/{queue}"))
                    .await?;
                folders
                    .iter()
                    .filter_map(|name| name.parse().ok())
                    .collect()
            } else {
                request.types.clone()
            };
            names.extend(types.into_iter().map(|task_type| ReadyListName {
                queue: queue.clone(),
                task_type,
                shards: Arc::clone(shards),
            }));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn try_claim(&self, entry: IndexEntry, request: &ClaimRequest) -> ClaimOutcome {
        let Some(_in_progress) = self.shared.ready_cache.begin_claim(entry.id) else {
            return ClaimOutcome::Unavailable;
        };
        // A LIST that started before this task was claimed may still show its entry.
        if self
            .shared
            .index_gc
            .is_pending(&Key::Ready(entry.clone()).to_string())
        {
            return ClaimOutcome::Unavailable;
        }
        let stored = match self.read(entry.id).await {
            Ok(stored) => stored,
            // The store reports that the task does not exist. A failed read would not justify deleting the entry.
            Err(error) if error.is_not_found() => return self.discard_stale(entry),
            Err(error @ EngineError::Unreadable { .. }) => {
                // The sweeper quarantines a damaged record. One of a later version is for other workers.
                tracing::warn!(task = %entry.id, %error, "skipping a task whose record cannot be read");
                let now = self.runtime().monotonic();
                self.shared.left_alone.leave(entry.id, now);
                return ClaimOutcome::Unavailable;
            }
            Err(error) => return ClaimOutcome::Failed(error),
        };
        if stored.task.status != Status::Pending || IndexEntry::of(&stored.task) != entry {
            return self.discard_stale(entry);
        }
        self.claim_stored(stored, request).await
    }

    /// Claims a task that was read as pending, if it has not changed since.
    pub(super) async fn claim_stored(
        &self,
        stored: StoredTask,
        request: &ClaimRequest,
    ) -> ClaimOutcome {
        if stored.task.is_expired(self.client().now()) {
            let id = stored.task.id;
            return match self.change(id, Some(stored), Action::Expire).await {
                Ok(_) | Err(EngineError::Rejected(_)) => ClaimOutcome::Unavailable,
                Err(error) => ClaimOutcome::Failed(error),
            };
        }
        let lease = self.runtime().new_lease_id();
        let (id, tag) = (stored.task.id, stored.tag.clone());
        let action = Action::Claim {
            worker: request.worker.clone(),
            lease,
            lease_ms: request.lease_ms.unwrap_or(self.config().lease_ms),
        };
        match self
            .try_change(stored, self.runtime().new_op_id(), action)
            .await
        {
            Ok(changed) => {
                let task = changed.task;
                if let Some(tag) = changed.tag {
                    let task = task.clone();
                    self.cache_claim(lease, StoredTask { task, tag });
                }
                ClaimOutcome::Claimed(Box::new(task))
            }
            Err(EngineError::Rejected(Rejection::NotDue { available_at })) => {
                ClaimOutcome::NotDue(available_at)
            }
            Err(EngineError::Store(StoreError::Conflict { .. })) => {
                if self.shared.left_alone.is_unswappable(id, &tag) {
                    tracing::error!(error = %unswappable(id), "skipping a task that cannot be changed");
                    let now = self.runtime().monotonic();
                    self.shared.left_alone.leave(id, now);
                }
                ClaimOutcome::Unavailable
            }
            // A task that cannot be claimed must not keep the worker from the other tasks.
            Err(EngineError::Rejected(_)) => ClaimOutcome::Unavailable,
            Err(error) => ClaimOutcome::Failed(error),
        }
    }

    /// Deletes a stale ready entry.
    fn discard_stale(&self, entry: IndexEntry) -> ClaimOutcome {
        self.shared.index_gc.enqueue([Key::Ready(entry)]);
        ClaimOutcome::Unavailable
    }
}
