//! Claiming tasks.
//!
//! A candidate from the index is read, checked, and swapped to running with the tag that was read. Of all claimers, one wins. The
//! others have spent a GET and a PUT and try the next candidate. Stale index entries found on the way are deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{IndexEntry, Key};
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::{Action, QueueName, Rejection, Shard, Status, Task, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::ClaimRequest;
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::change::unswappable;
use super::limits::Slots;
use super::ordering::LinePosition;
use super::ready_cache::{ReadyListName, take_most_urgent};
use super::{DirectEngine, IndexMode, StoredTask};

/// How often one search takes candidates. Each round lists at most one page of each queue and type; between searches the claim continues to wait.
const ROUNDS_MAX: usize = 4;

/// The result of trying to claim a candidate.
pub(super) enum ClaimOutcome {
    /// The task was claimed.
    Claimed(Box<Task>),
    /// The task cannot be claimed: another worker has it, or the index entry is stale.
    Unavailable,
    /// A limit of the task has no room.
    Limited,
    /// The task is not due yet by this process's clock, which may be a little behind the submitter's.
    NotDue(Timestamp),
    /// The store failed.
    Failed(EngineError),
}

/// Receives the tasks of a claim as they are claimed.
pub(super) struct ClaimSink<'a> {
    count: usize,
    each: &'a mut (dyn FnMut(Task) + Send),
}

impl<'a> ClaimSink<'a> {
    pub(super) fn new(each: &'a mut (dyn FnMut(Task) + Send)) -> Self {
        Self { count: 0, each }
    }

    /// The number of tasks so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, task: Task) {
        self.count += 1;
        (self.each)(task);
    }
}

impl DirectEngine {
    pub(super) async fn claim_waiting(
        &self,
        request: &ClaimRequest,
        sink: &mut ClaimSink<'_>,
    ) -> Result<(), EngineError> {
        self.claim_until(request, sink).await?;
        let names_any = !request.queues.is_empty() || !request.types.is_empty();
        if sink.count() == 0 && request.max > 0 && names_any {
            let pauses = self.known_pauses().await?;
            if let Some(stopped) = pauses.stop_all(&request.queues, &request.types) {
                return Err(stopped.into());
            }
        }
        Ok(())
    }

    /// Claims ready tasks, or waits until some become ready or the wait time of the request ends.
    async fn claim_until(
        &self,
        request: &ClaimRequest,
        sink: &mut ClaimSink<'_>,
    ) -> Result<(), EngineError> {
        request.checked_lease_ms(self.config().lease_ms)?;
        if request.max == 0 {
            return Ok(());
        }
        let deadline = self.runtime().monotonic() + Duration::from_millis(request.wait_ms);
        let waits_ended = || self.shared.waits_ended.load(Ordering::Relaxed);
        let ended_before = waits_ended();
        loop {
            let epoch = self.shared.signal.epoch();
            let next_check = self.claim_now(request, sink).await?;
            let left = deadline.saturating_sub(self.runtime().monotonic());
            if sink.count() > 0 || waits_ended() != ended_before {
                return Ok(());
            }
            if left.is_zero() {
                // A caller that never waits would otherwise see tasks of other submitters only after the fallback interval.
                self.shared.signal.poll().await;
                if self.shared.signal.epoch() != epoch {
                    self.claim_now(request, sink).await?;
                }
                return Ok(());
            }
            let due_in = next_check.map(|due| due.since(self.client().now()));
            let limit = left.min(due_in.unwrap_or(left).max(Duration::from_millis(1)));
            self.shared.signal.wait(epoch, limit).await;
        }
    }

    /// Claims tasks without waiting. Returns when the next check may find more, without any signal.
    async fn claim_now(
        &self,
        request: &ClaimRequest,
        sink: &mut ClaimSink<'_>,
    ) -> Result<Option<Timestamp>, EngineError> {
        self.limit_rules().await?;
        self.recheck_full_limits().await?;
        let mode = self.config().index_mode;
        if mode == IndexMode::LogScan {
            self.claim_by_scan(request, sink).await?;
            let idle = self.scan_idle_time(request).await;
            let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
            return Ok(Some(self.client().now().plus_millis(idle_ms)));
        }
        let next_check = self.claim_by_index(request, sink).await?;
        if mode == IndexMode::Hybrid
            && sink.count() == 0
            && self.is_fallback_scan_due(request).await
        {
            self.claim_by_scan(request, sink).await?;
        }
        Ok(next_check)
    }

    async fn claim_by_index(
        &self,
        request: &ClaimRequest,
        sink: &mut ClaimSink<'_>,
    ) -> Result<Option<Timestamp>, EngineError> {
        self.promote_for_claim().await;
        let max = request.max.min(CLAIM_MAX_TASKS);
        let shards: Arc<[Shard]> = request.shards.clone().into();
        let names = self.ready_list_names(request, &shards).await?;
        self.skip_empty_lists(&names).await;
        for _ in 0..ROUNDS_MAX {
            let candidates = self
                .take_candidates(&names, request, max - sink.count())
                .await?;
            if candidates.is_empty() {
                // Two events come without a signal: a task becomes due, or a task reserved for another worker may be stolen.
                // Or a limit may have room again.
                let next = [
                    self.next_promotion(),
                    self.next_relist(&names),
                    self.next_limit_check(),
                ];
                return Ok(next.into_iter().flatten().min());
            }
            self.announce_claims();
            let shards = &shards;
            let mut outcomes = futures_util::stream::iter(candidates)
                .map(|entry| async move {
                    let name = ReadyListName {
                        queue: entry.queue.clone(),
                        task_type: entry.task_type.clone(),
                        shards: Arc::clone(shards),
                        in_order: request.in_order,
                    };
                    (name, self.try_claim(entry, request).await)
                })
                .buffer_unordered(self.config().concurrency);
            let mut failure = None;
            while let Some((name, outcome)) = outcomes.next().await {
                match outcome {
                    ClaimOutcome::Claimed(task) => sink.push(*task),
                    ClaimOutcome::Unavailable => {}
                    ClaimOutcome::Limited => self.mark_skipped(&name),
                    ClaimOutcome::NotDue(at) => self.relist_at(&name, at),
                    ClaimOutcome::Failed(error) => {
                        self.relist_soon(&name);
                        failure = Some(error);
                    }
                }
            }
            match failure {
                // Tasks that were claimed before are running, so the claim has not failed.
                Some(error) if sink.count() == 0 => return Err(error),
                Some(_) => return Ok(None),
                None if sink.count() >= max => return Ok(None),
                None => {}
            }
        }
        // The cache may hold more candidates, so the next search follows at once.
        Ok(Some(self.client().now()))
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
        if self.any_limit_full() {
            for list in &lists {
                list.drop_entries(|entry| self.waits_for_limit(entry));
            }
        }
        // Entries that are not taken stay cached for the next claim.
        Ok(take_most_urgent(&lists, count))
    }

    /// The queues and types to claim from. If the request does not name them, they are listed from the index.
    async fn ready_list_names(
        &self,
        request: &ClaimRequest,
        shards: &Arc<[Shard]>,
    ) -> Result<Vec<ReadyListName>, EngineError> {
        let pauses = self.known_pauses().await?;
        let queues = if request.queues.is_empty() {
            self.queues_with_tasks().await?
        } else {
            request.queues.clone()
        };
        let mut names = Vec::new();
        let is_paused = |queue: &QueueName| pauses.queues.contains_key(queue);
        for queue in queues.into_iter().filter(|queue| !is_paused(queue)) {
            let types = if request.types.is_empty() {
                self.types_with_tasks(&queue).await?
            } else {
                request.types.clone()
            };
            let types = types.into_iter();
            let types = types.filter(|task_type| !pauses.types.contains_key(task_type));
            names.extend(types.map(|task_type| ReadyListName {
                queue: queue.clone(),
                task_type,
                shards: Arc::clone(shards),
                in_order: request.in_order,
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
                self.shared.unclaimable.add(entry.id, now);
                return ClaimOutcome::Unavailable;
            }
            Err(error) => return ClaimOutcome::Failed(error),
        };
        if stored.task.status != Status::Pending {
            // Whoever settled a task with an ordering key may have died before the next one got its entry.
            if stored.task.ordering_key.is_some()
                && let Err(error) = self.restore_entry(&stored.task).await
            {
                return ClaimOutcome::Failed(error);
            }
            return self.discard_stale(entry);
        }
        if IndexEntry::of(&stored.task) != entry {
            // A process may have died after it gave the task another due time, priority or queue, before it wrote the new entry.
            return match self.restore_entry(&stored.task).await {
                Ok(()) => self.discard_stale(entry),
                Err(error) => ClaimOutcome::Failed(error),
            };
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
        if stored.task.ordering_key.is_some() {
            match self.position_in_line(&stored.task).await {
                Ok(LinePosition::Head) => {}
                // Another program wrote its entry. The entry is left alone, because the task needs the same one when its turn comes.
                Ok(LinePosition::Behind { .. }) => return ClaimOutcome::Unavailable,
                Ok(LinePosition::Absent) => {
                    return match self.restore_place(&stored.task).await {
                        Ok(()) => ClaimOutcome::Unavailable,
                        Err(error) => ClaimOutcome::Failed(error),
                    };
                }
                Err(error) => return ClaimOutcome::Failed(error),
            }
        }
        let lease = self.runtime().new_lease_id();
        let lease_ms = request.lease_ms.unwrap_or(self.config().lease_ms);
        // The attempt starts at the time for which its limits have room, however long it takes to find out.
        let at = self.client().now();
        if stored.task.available_at > at {
            return ClaimOutcome::NotDue(stored.task.available_at);
        }
        let slots = match self.take_slots(&stored, lease, lease_ms, at).await {
            Ok(Slots::Taken(slots)) => slots,
            Ok(Slots::Full) => return ClaimOutcome::Limited,
            Err(error) => return ClaimOutcome::Failed(error),
        };
        let (id, tag) = (stored.task.id, stored.tag.clone());
        let action = Action::Claim {
            worker: request.worker.clone(),
            lease,
            lease_ms,
        };
        let now = self.client().now();
        let at = if slots.is_empty() { now } else { at };
        if now.since(at) > Duration::from_millis(lease_ms / 2) {
            // Too little would be left of the lease.
            self.take_back_slots(&stored, lease, at, &slots, false)
                .await;
            return ClaimOutcome::NotDue(now);
        }
        // Only a task with a limit is kept for the case that its slots must be taken back.
        let read = (!slots.is_empty()).then(|| stored.clone());
        let op = self.runtime().new_op_id();
        let result = self.try_change_at(stored, op, action, at).await;
        match (&result, read) {
            (Ok(_), _) => self.hold_slots(lease, slots),
            (Err(EngineError::Rejected(_)), Some(read)) => {
                self.take_back_slots(&read, lease, at, &slots, false).await;
            }
            (Err(EngineError::Store(StoreError::Conflict { .. })), Some(read)) => {
                self.take_back_slots(&read, lease, at, &slots, true).await;
            }
            // A claim that is in doubt may have succeeded.
            _ => {}
        }
        match result {
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
                if self.shared.unclaimable.is_unswappable(id, &tag) {
                    tracing::error!(error = %unswappable(id), "skipping a task that cannot be changed");
                    let now = self.runtime().monotonic();
                    self.shared.unclaimable.add(id, now);
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
