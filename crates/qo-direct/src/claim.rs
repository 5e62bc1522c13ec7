//! Handing out work.
//!
//! A candidate from the index is read, checked, and swapped to running under the tag that was read: of all who try, one wins.
//! The rest have lost a GET and a PUT and take the next candidate. What is found stale on the way is cleared away.

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

use super::ready_cache::{ReadyListName, take_most_urgent};
use super::{DirectEngine, IndexMode, Stored};

/// What came of trying a candidate.
pub(super) enum Tried {
    /// It is ours.
    Claimed(Box<Task>),
    /// It is somebody else's, or was never there.
    Gone,
    /// It is not due yet by the clock of this process, which may be a little behind that of the submitter.
    NotDue(Timestamp),
    /// It could not be tried.
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

    /// Claims what there is, or what comes until the wait is over.
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
            let seen = self.shared.signal.epoch();
            let (claimed, next_look) = self.claim_now(request).await?;
            let left = deadline.saturating_sub(self.runtime().monotonic());
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            if left.is_zero() {
                // Whoever never waits would otherwise not hear of what others submit before the fallback interval.
                self.shared.signal.poll().await;
                if self.shared.signal.epoch() == seen {
                    return Ok(claimed);
                }
                return Ok(self.claim_now(request).await?.0);
            }
            let due_in = next_look.map(|due| due.since(self.client().now()));
            let limit = left.min(due_in.unwrap_or(left).max(Duration::from_millis(1)));
            self.shared.signal.wait(seen, limit).await;
        }
    }

    /// What can be claimed without waiting, and when a look may show something that this one does not.
    async fn claim_now(
        &self,
        request: &ClaimRequest,
    ) -> Result<(Vec<Task>, Option<Timestamp>), EngineError> {
        let mode = self.config().index_mode;
        if mode == IndexMode::LogScan {
            let claimed = self.claim_by_scan(request).await?;
            let rest = self.scan_rests_for(request).await;
            let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
            return Ok((claimed, Some(self.client().now().plus_millis(rest_ms))));
        }
        let (claimed, next_look) = self.claim_by_index(request).await?;
        if mode == IndexMode::Hybrid
            && claimed.is_empty()
            && self.is_fallback_scan_due(request).await
        {
            return Ok((self.claim_by_scan(request).await?, next_look));
        }
        Ok((claimed, next_look))
    }

    async fn claim_by_index(
        &self,
        request: &ClaimRequest,
    ) -> Result<(Vec<Task>, Option<Timestamp>), EngineError> {
        self.promote_due().await?;
        let max = request.max.min(CLAIM_MAX_TASKS);
        let shards: Arc<[Shard]> = request.shards.clone().into();
        let lanes = self.lanes_of(request, &shards).await?;
        let mut claimed = Vec::new();
        loop {
            let candidates = self.gather(&lanes, request, max - claimed.len()).await?;
            if candidates.is_empty() {
                // Something falls due, or another worker has left a task lying for too long: neither needs a signal.
                let next = [self.shared.scheduled.next_due(), self.next_look(&lanes)];
                return Ok((claimed, next.into_iter().flatten().min()));
            }
            self.announce_claims().await;
            let shards = &shards;
            let tried: Vec<(ReadyListName, Tried)> = futures_util::stream::iter(candidates)
                .map(|entry| async move {
                    let lane = ReadyListName {
                        queue: entry.queue.clone(),
                        task_type: entry.task_type.clone(),
                        shards: Arc::clone(shards),
                    };
                    (lane, self.try_claim(entry, request).await)
                })
                .buffer_unordered(self.config().concurrency)
                .collect()
                .await;
            let mut failure = None;
            for (lane, tried) in tried {
                match tried {
                    Tried::Claimed(task) => claimed.push(*task),
                    Tried::Gone => {}
                    Tried::NotDue(at) => self.look_again_at(&lane, at),
                    Tried::Failed(error) => {
                        self.look_again(&lane);
                        failure = Some(error);
                    }
                }
            }
            claimed.sort_by_key(|task| (task.priority, task.available_at));
            match failure {
                // What was claimed is running and must be handed out, whatever happened beside it.
                Some(error) if claimed.is_empty() => return Err(error),
                Some(_) => return Ok((claimed, None)),
                None if claimed.len() >= max => return Ok((claimed, None)),
                None => {}
            }
        }
    }

    /// Candidates of all lanes, the most urgent first.
    async fn gather(
        &self,
        lanes: &[ReadyListName],
        request: &ClaimRequest,
        count: usize,
    ) -> Result<Vec<IndexEntry>, EngineError> {
        let known = futures_util::future::try_join_all(
            lanes
                .iter()
                .map(|lane| self.known_lane(lane, &request.worker)),
        )
        .await?;
        // What is not taken stays known, for the next claim.
        Ok(take_most_urgent(&known, count))
    }

    /// The queues and types to look at. Where the request leaves them open, the index says which there are.
    async fn lanes_of(
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
        let mut lanes = Vec::new();
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
            lanes.extend(types.into_iter().map(|task_type| ReadyListName {
                queue: queue.clone(),
                task_type,
                shards: Arc::clone(shards),
            }));
        }
        lanes.sort();
        lanes.dedup();
        Ok(lanes)
    }

    async fn try_claim(&self, entry: IndexEntry, request: &ClaimRequest) -> Tried {
        let Some(_trying) = self.shared.ready_cache.try_one(entry.id) else {
            return Tried::Gone;
        };
        // A list from before the claim that took this task may have shown it since.
        if self
            .shared
            .index_gc
            .is_sweeping(&Key::Ready(entry.clone()).to_string())
        {
            return Tried::Gone;
        }
        let stored = match self.read(entry.id).await {
            Ok(stored) => stored,
            // The store has said that there is no such task, which is not the same as having failed to say anything.
            Err(error) if error.is_not_found() => return self.gone(entry),
            Err(error @ EngineError::Unreadable { .. }) => {
                // The sweeper puts it under quarantine; until then it is passed by.
                tracing::warn!(task = %entry.id, %error, "passing by a task that cannot be read");
                return Tried::Gone;
            }
            Err(error) => return Tried::Failed(error),
        };
        if stored.task.status != Status::Pending || IndexEntry::of(&stored.task) != entry {
            return self.gone(entry);
        }
        self.claim_stored(stored, request).await
    }

    /// Claims a task that was read as pending, if nobody has changed it since.
    pub(super) async fn claim_stored(&self, stored: Stored, request: &ClaimRequest) -> Tried {
        if stored.task.is_expired(self.client().now()) {
            let id = stored.task.id;
            return match self.change(id, Some(stored), Action::Expire).await {
                Ok(_) | Err(EngineError::Rejected(_)) => Tried::Gone,
                Err(error) => Tried::Failed(error),
            };
        }
        let lease = self.runtime().new_lease_id();
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
                    self.hold(lease, Stored { task, tag });
                }
                Tried::Claimed(Box::new(task))
            }
            Err(EngineError::Rejected(Rejection::NotDue { available_at })) => {
                Tried::NotDue(available_at)
            }
            // One task that cannot be claimed, for whatever reason, must not keep a worker from all others.
            Err(EngineError::Store(StoreError::Conflict { .. }) | EngineError::Rejected(_)) => {
                Tried::Gone
            }
            Err(error) => Tried::Failed(error),
        }
    }

    /// Clears away an entry that is no longer true.
    fn gone(&self, entry: IndexEntry) -> Tried {
        self.shared.index_gc.sweep([Key::Ready(entry)]);
        Tried::Gone
    }
}
