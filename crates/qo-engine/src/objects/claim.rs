//! Handing out work.
//!
//! A candidate from the index is read, checked, and swapped to running under the tag that was read: of all who try, one wins.
//! The rest have lost a GET and a PUT and take the next candidate. What is found stale on the way is cleared away.

use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{IndexEntry, Key, READY_PREFIX};
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::{Action, Rejection, Status, Task, Timestamp};
use qo_store::StoreError;
use qo_store::world::WorldExt;

use super::lanes::LaneName;
use super::{ObjectsEngine, Stored};
use crate::api::ClaimRequest;
use crate::error::EngineError;

/// What came of trying a candidate.
enum Tried {
    /// It is ours.
    Claimed(Box<Task>),
    /// It is somebody else's, or was never there.
    Gone,
    /// It is not due yet, by a clock that has been corrected since it was found.
    Early(Timestamp),
    /// It could not be tried.
    Failed(EngineError),
}

impl ObjectsEngine {
    pub(super) async fn claim_waiting(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<Task>, EngineError> {
        if request.max == 0 {
            return Ok(Vec::new());
        }
        let deadline = self.world().monotonic() + Duration::from_millis(request.wait_ms);
        loop {
            let seen = self.shared.signal.epoch();
            let claimed = self.claim_now(request).await?;
            let left = deadline.saturating_sub(self.world().monotonic());
            if !claimed.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            let due_in = self
                .shared
                .later
                .next_due()
                .map(|due| due.since(self.client().now()));
            // A task that another worker has left lying can be taken after a while, without any signal.
            let limit = left.min(due_in.unwrap_or(left).max(Duration::from_millis(1)));
            self.shared.signal.wait(seen, limit).await;
        }
    }

    async fn claim_now(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        self.promote_due().await?;
        let max = request.max.min(CLAIM_MAX_TASKS);
        let lanes = self.lanes_of(request).await?;
        let mut claimed = Vec::new();
        loop {
            let candidates = self.gather(&lanes, request, max - claimed.len()).await?;
            if candidates.is_empty() {
                return Ok(claimed);
            }
            self.announce_claims().await;
            let tried: Vec<(LaneName, Tried)> = futures_util::stream::iter(candidates)
                .map(|entry| async move {
                    let lane = (entry.queue.clone(), entry.task_type.clone());
                    (lane, self.try_claim(entry, request).await)
                })
                .buffer_unordered(self.config().concurrency)
                .collect()
                .await;
            let mut failure = None;
            let mut early = false;
            for (lane, tried) in tried {
                match tried {
                    Tried::Claimed(task) => claimed.push(*task),
                    Tried::Gone => {}
                    Tried::Early(due) => {
                        self.look_again(&lane);
                        self.shared.later.expect(due);
                        early = true;
                    }
                    Tried::Failed(error) => {
                        self.look_again(&lane);
                        failure = Some(error);
                    }
                }
            }
            match failure {
                // What was claimed is running and must be handed out, whatever happened beside it.
                Some(error) if claimed.is_empty() => return Err(error),
                Some(_) => return Ok(claimed),
                // Looking again at once would find the same; whoever waits does so until it is due.
                None if early || claimed.len() >= max => return Ok(claimed),
                None => {}
            }
        }
    }

    /// Candidates of all lanes, the most urgent first.
    async fn gather(
        &self,
        lanes: &[LaneName],
        request: &ClaimRequest,
        count: usize,
    ) -> Result<Vec<IndexEntry>, EngineError> {
        if let [lane] = lanes {
            return self.candidates(lane, &request.worker, count).await;
        }
        // Each lane gives its best; what is not taken now is taken next, so that no lane waits for another.
        let each = count.div_ceil(lanes.len().max(1));
        let mut found = Vec::new();
        for result in futures_util::future::join_all(
            lanes
                .iter()
                .map(|lane| self.candidates(lane, &request.worker, each)),
        )
        .await
        {
            found.extend(result?);
        }
        found.sort_by_key(|entry| (entry.priority, entry.available_at));
        Ok(found)
    }

    /// The queues and types to look at. Where the request leaves them open, the index says which there are.
    async fn lanes_of(&self, request: &ClaimRequest) -> Result<Vec<LaneName>, EngineError> {
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
            lanes.extend(
                types
                    .into_iter()
                    .map(|task_type| (queue.clone(), task_type)),
            );
        }
        lanes.sort();
        lanes.dedup();
        Ok(lanes)
    }

    async fn try_claim(&self, entry: IndexEntry, request: &ClaimRequest) -> Tried {
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
        if stored.task.is_expired(self.client().now()) {
            return match self.change(entry.id, Some(stored), Action::Expire).await {
                Ok(_) | Err(EngineError::Rejected(_)) => Tried::Gone,
                Err(error) => Tried::Failed(error),
            };
        }
        let lease = self.world().new_lease_id();
        let action = Action::Claim {
            worker: request.worker.clone(),
            lease,
            lease_ms: request.lease_ms.unwrap_or(self.config().lease_ms),
        };
        match self
            .try_change(stored, self.world().new_op_id(), action)
            .await
        {
            Ok(changed) => {
                let task = changed.task;
                if let Some(tag) = changed.tag {
                    self.held().insert(
                        lease,
                        Stored {
                            task: task.clone(),
                            tag,
                        },
                    );
                }
                Tried::Claimed(Box::new(task))
            }
            Err(EngineError::Store(StoreError::Conflict { .. })) => Tried::Gone,
            Err(EngineError::Rejected(Rejection::NotDue { available_at })) => {
                Tried::Early(available_at)
            }
            Err(error) => Tried::Failed(error),
        }
    }

    /// Clears away an entry that is no longer true.
    fn gone(&self, entry: IndexEntry) -> Tried {
        self.shared.broom.sweep([Key::Ready(entry)]);
        Tried::Gone
    }
}
