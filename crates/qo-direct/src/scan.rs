//! Finds tasks by scanning the tasks themselves, without any index.
//!
//! Two index modes use it: `log-scan` finds tasks only this way, and `hybrid` scans one page when the index has returned nothing for
//! a while. A scan passes over all tasks in the order of their ids, from a random start, so that the scans of many workers rarely
//! meet. Each page costs a LIST (two when the scan wraps around) and a GET per task, because only the record has the task's
//! fields. Tasks of a page that one claim does not need serve the next claims.
//!
//! In `log-scan` mode a completed pass is followed by a pause until there may be something new: a signal, a task seen by the pass
//! that becomes due, or the fallback interval. Within a pass, pages follow each other without a pause. A task that could not be
//! read, or whose page was abandoned because the caller went away, is skipped until the next pass.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{Key, TASKS_PREFIX};
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::{Pauses, QueueName, Shard, Status, Task, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::ClaimRequest;
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::claim::{ClaimOutcome, ClaimSink};
use super::{DirectEngine, StoredTask, lock};

/// The maximum number of scans. At the limit all are dropped.
const SCANS_MAX: usize = 1_000;
/// A task that was read longer ago than this is read again before it is claimed: another worker may have taken it, and a failed
/// swap costs more than a read.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// The queues, types and shards of a claim. Claims with different filters do not share a scan, because each scan skips the tasks
/// that its filter excludes.
type ScanFilter = (Vec<QueueName>, Vec<TaskType>, Vec<Shard>);

#[derive(Default)]
pub(super) struct TaskScans {
    scans: Mutex<BTreeMap<ScanFilter, Arc<tokio::sync::Mutex<TaskScan>>>>,
}

/// A scan over all tasks.
#[derive(Default)]
struct TaskScan {
    /// The key of the last listed task; the scan starts at the front if absent.
    after: Option<String>,
    pass: Option<ScanPass>,
    /// When the last page was scanned.
    scanned_at: Option<Duration>,
    /// Tasks that can be claimed, and when they were read.
    candidates: VecDeque<(StoredTask, Duration)>,
}

/// One pass over all tasks.
struct ScanPass {
    started_at: Duration,
    /// The signal epoch at the start.
    epoch: u64,
    /// The key at which the pass starts, and ends after it has wrapped around.
    origin: String,
    has_wrapped: bool,
    is_complete: bool,
    /// The earliest due time of the tasks that were not due yet.
    next_due: Option<Timestamp>,
}

impl TaskScans {
    fn scan(&self, request: &ClaimRequest) -> Arc<tokio::sync::Mutex<TaskScan>> {
        let filter = (
            request.queues.clone(),
            request.types.clone(),
            request.shards.clone(),
        );
        let mut scans = lock(&self.scans);
        if scans.len() >= SCANS_MAX && !scans.contains_key(&filter) {
            scans.clear();
        }
        Arc::clone(scans.entry(filter).or_default())
    }
}

impl DirectEngine {
    /// Claims the candidates of earlier pages, and scans at most one more page if they are not enough.
    pub(super) async fn claim_by_scan(
        &self,
        request: &ClaimRequest,
        sink: &mut ClaimSink<'_>,
    ) -> Result<(), EngineError> {
        let max = request.max.min(CLAIM_MAX_TASKS);
        let scan = self.shared.scans.scan(request);
        let pauses = self.known_pauses().await?;
        let mut failure = None;
        let mut has_scanned = false;
        while sink.count() < max && failure.is_none() {
            let candidates = {
                let mut scan = scan.lock().await;
                if scan.candidates.is_empty() {
                    if has_scanned {
                        break;
                    }
                    has_scanned = true;
                    failure = self.scan_page(&mut scan, request, &pauses).await?;
                }
                let count = (max - sink.count()).min(scan.candidates.len());
                scan.candidates.drain(..count).collect::<Vec<_>>()
            };
            let pauses = &*pauses;
            let mut outcomes = futures_util::stream::iter(candidates)
                .map(|(stored, read_at)| self.claim_candidate(stored, read_at, request, pauses))
                .buffer_unordered(self.config().concurrency);
            while let Some(outcome) = outcomes.next().await {
                match outcome {
                    ClaimOutcome::Claimed(task) => sink.push(*task),
                    // The next pass finds tasks that are not due yet, or wait for a limit.
                    ClaimOutcome::Unavailable | ClaimOutcome::NotDue(_) | ClaimOutcome::Limited => {
                    }
                    ClaimOutcome::Failed(error) => failure = Some(error),
                }
            }
        }
        match failure {
            // Tasks that were claimed before are running, so the claim has not failed.
            Some(error) if sink.count() == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether hybrid mode should scan a page now.
    pub(super) async fn is_fallback_scan_due(&self, request: &ClaimRequest) -> bool {
        let scan = self.shared.scans.scan(request);
        let scan = scan.lock().await;
        let interval = self.config().fallback_interval;
        !scan.candidates.is_empty()
            || scan
                .scanned_at
                .is_none_or(|at| self.runtime().monotonic() >= at + interval)
    }

    /// How long a scan in log-scan mode can pause before its next page.
    pub(super) async fn scan_idle_time(&self, request: &ClaimRequest) -> Duration {
        let scan = self.shared.scans.scan(request);
        let scan = scan.lock().await;
        match &scan.pass {
            Some(pass) if scan.candidates.is_empty() => self.pause_after(pass),
            _ => Duration::ZERO,
        }
    }

    /// How long to pause after a pass: until there may be something that the pass has not seen.
    fn pause_after(&self, pass: &ScanPass) -> Duration {
        if !pass.is_complete || pass.epoch != self.shared.signal.epoch() {
            return Duration::ZERO;
        }
        let fallback = (pass.started_at + self.config().fallback_interval)
            .saturating_sub(self.runtime().monotonic());
        let now = self.client().now();
        let next_due = pass.next_due.map(|due| due.since(now));
        next_due.map_or(fallback, |next_due| next_due.min(fallback))
    }

    /// Scans one page. If the store fails for a task, the error is returned with the candidates of the other tasks.
    async fn scan_page(
        &self,
        scan: &mut TaskScan,
        request: &ClaimRequest,
        pauses: &Pauses,
    ) -> Result<Option<EngineError>, EngineError> {
        if !self.continue_or_start_pass(scan) {
            return Ok(None);
        }
        let keys = self.next_keys(scan).await?;
        let read_at = self.runtime().monotonic();
        scan.scanned_at = Some(read_at);
        let mut ids = Vec::with_capacity(keys.len());
        for key in &keys {
            if let Ok(Key::Task(id)) = key.parse::<Key>()
                && request.includes(id.shard())
            {
                ids.push(id);
            }
        }
        let read: Vec<_> = futures_util::stream::iter(ids)
            .map(|id| async move { (id, self.read(id).await) })
            .buffer_unordered(self.config().concurrency)
            .collect()
            .await;
        let now = self.client().now();
        let mut failure = None;
        let mut candidates = Vec::new();
        for (id, result) in read {
            match result {
                Ok(stored) if !is_claimable(&stored.task, request, pauses) => {}
                Ok(stored) if stored.task.available_at > now => {
                    if let Some(pass) = &mut scan.pass {
                        let due = stored.task.available_at;
                        pass.next_due = Some(pass.next_due.map_or(due, |earlier| earlier.min(due)));
                    }
                }
                Ok(stored) => candidates.push((stored, read_at)),
                Err(error) if error.is_not_found() => {}
                Err(
                    error @ (EngineError::Unreadable { .. }
                    | EngineError::Store(
                        StoreError::Corrupt { .. } | StoreError::Unsupported { .. },
                    )),
                ) => tracing::warn!(task = %id, %error, "skipping a task that cannot be read"),
                Err(error) => failure = Some(error),
            }
        }
        candidates.sort_by_key(|(stored, _)| (stored.task.priority, stored.task.available_at));
        scan.candidates = candidates.into();
        Ok(failure)
    }

    /// Continues the current pass, or starts a new one if it is time for it. Returns false if the scan should pause.
    fn continue_or_start_pass(&self, scan: &mut TaskScan) -> bool {
        let epoch = self.shared.signal.epoch();
        let at = self.runtime().monotonic();
        let origin = match &scan.pass {
            Some(pass) if !pass.is_complete => return true,
            Some(pass) if !self.pause_after(pass).is_zero() => return false,
            Some(pass) => pass.origin.clone(),
            None => Key::Task(self.runtime().new_task_id()).to_string(),
        };
        scan.after = Some(origin.clone());
        scan.pass = Some(ScanPass {
            started_at: at,
            epoch,
            origin,
            has_wrapped: false,
            is_complete: false,
            next_due: None,
        });
        true
    }

    /// The keys of the next page. Wraps around to the front if the end comes before the page is full.
    async fn next_keys(&self, scan: &mut TaskScan) -> Result<Vec<String>, EngineError> {
        let limit = self.config().log_scan_page_size;
        let mut keys: Vec<String> = Vec::new();
        while let Some(pass) = &mut scan.pass
            && !pass.is_complete
            && keys.len() < limit
        {
            let page = match self
                .client()
                .page(TASKS_PREFIX, scan.after.as_deref(), limit - keys.len())
                .await
            {
                Ok(page) => page,
                // Scan the keys listed so far; the next page repeats this LIST.
                Err(_) if !keys.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            let is_end = page.next.is_none();
            scan.after = page.next;
            let listed = page.entries.into_iter().map(|entry| entry.key);
            if pass.has_wrapped {
                let before = keys.len();
                let count = listed.len();
                keys.extend(listed.take_while(|key| *key <= pass.origin));
                pass.is_complete = is_end || keys.len() - before < count;
            } else {
                keys.extend(listed);
                pass.has_wrapped = is_end;
            }
        }
        Ok(keys)
    }

    /// Claims a candidate, after reading it again if it was read too long ago.
    async fn claim_candidate(
        &self,
        stored: StoredTask,
        read_at: Duration,
        request: &ClaimRequest,
        pauses: &Pauses,
    ) -> ClaimOutcome {
        // Without an index entry nobody has confirmed yet that a task with a key was not purged before a late submit created it.
        match self.is_revived(&stored.task).await {
            Ok(false) => {}
            Ok(true) => return ClaimOutcome::Unavailable,
            Err(error) => return ClaimOutcome::Failed(error),
        }
        if self.runtime().monotonic() < read_at + FRESH_FOR {
            return self.claim_stored(stored, request).await;
        }
        match self.read(stored.task.id).await {
            Ok(stored) if is_claimable(&stored.task, request, pauses) => {
                self.claim_stored(stored, request).await
            }
            Ok(_) | Err(EngineError::Unreadable { .. }) => ClaimOutcome::Unavailable,
            Err(error) if error.is_not_found() => ClaimOutcome::Unavailable,
            Err(error) => ClaimOutcome::Failed(error),
        }
    }
}

/// Whether a task is pending and matches the request.
fn is_claimable(task: &Task, request: &ClaimRequest, pauses: &Pauses) -> bool {
    task.status == Status::Pending
        && (request.queues.is_empty() || request.queues.contains(&task.queue))
        && (request.types.is_empty() || request.types.contains(&task.task_type))
        && !pauses.stop(&task.queue, &task.task_type)
}
