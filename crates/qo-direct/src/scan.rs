//! Finding work by walking the tasks themselves, without any index.
//!
//! Two of the index modes use it: `log-scan` claims by nothing else, and `hybrid` looks at one page when the index has shown
//! nothing for a while. A walk goes round all tasks in the order of their ids, from a random place, so that the walks of many
//! workers rarely meet. One look is one page: a LIST (two where the walk begins anew at the front) and a GET per task, because
//! only the record says what a task is. What a page holds beyond the wish of one claim serves the next claims.
//!
//! In `log-scan` mode a walk that has been all the way round rests until there can be something new: a signal, a task that
//! it has seen falling due, or the fallback interval. Until then every further look is made at once. A task that could not be
//! read, or whose page was given up because the caller went away, is passed by and seen again on the next round.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::{Key, TASKS_PREFIX};
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::{QueueName, Shard, Status, Task, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::ClaimRequest;
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::claim::Tried;
use super::{DirectEngine, Stored, lock};

/// How many walks are remembered; beyond that the memory starts anew.
const WALKS_MAX: usize = 1_000;
/// A task that was read longer ago than this is read again before it is claimed: others have had time to take it, and a
/// swap that fails costs more than a read.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// What a walk looks for. Walks that look for different things do not pass by what the other one wants.
type Wish = (Vec<QueueName>, Vec<TaskType>, Vec<Shard>);

#[derive(Default)]
pub(super) struct Scan {
    walks: Mutex<BTreeMap<Wish, Arc<tokio::sync::Mutex<Walk>>>>,
}

/// One walk round all tasks.
#[derive(Default)]
struct Walk {
    /// The key of the last task that was looked at; the front, if there is none.
    after: Option<String>,
    round: Option<Round>,
    /// When a page was last looked at.
    looked_at: Option<Duration>,
    /// Tasks that can be claimed, and when they were read.
    found: VecDeque<(Stored, Duration)>,
}

/// One time round.
struct Round {
    started_at: Duration,
    /// What had been signalled by then.
    epoch: u64,
    /// Where it began, and where it ends after having passed the front.
    origin: String,
    passed_front: bool,
    is_over: bool,
    /// The earliest time at which a task falls due that was not due yet.
    next_due: Option<Timestamp>,
}

impl Scan {
    fn walk(&self, request: &ClaimRequest) -> Arc<tokio::sync::Mutex<Walk>> {
        let wish = (
            request.queues.clone(),
            request.types.clone(),
            request.shards.clone(),
        );
        let mut walks = lock(&self.walks);
        if walks.len() >= WALKS_MAX && !walks.contains_key(&wish) {
            walks.clear();
        }
        Arc::clone(walks.entry(wish).or_default())
    }
}

impl DirectEngine {
    /// Claims what earlier looks have found, and what one more shows if that is not enough.
    pub(super) async fn claim_by_scan(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<Task>, EngineError> {
        let max = request.max.min(CLAIM_MAX_TASKS);
        let walk = self.shared.scan.walk(request);
        let paused = self.paused().await?;
        let mut claimed = Vec::new();
        let mut failure = None;
        let mut has_looked = false;
        while claimed.len() < max && failure.is_none() {
            let candidates = {
                let mut walk = walk.lock().await;
                if walk.found.is_empty() {
                    if has_looked {
                        break;
                    }
                    has_looked = true;
                    failure = self.look(&mut walk, request, &paused).await?;
                }
                let count = (max - claimed.len()).min(walk.found.len());
                walk.found.drain(..count).collect::<Vec<_>>()
            };
            let paused = &paused;
            let tried: Vec<Tried> = futures_util::stream::iter(candidates)
                .map(|(stored, read_at)| self.try_found(stored, read_at, request, paused))
                .buffer_unordered(self.config().concurrency)
                .collect()
                .await;
            for tried in tried {
                match tried {
                    Tried::Claimed(task) => claimed.push(*task),
                    // The next round finds what is not due yet.
                    Tried::Gone | Tried::NotDue(_) => {}
                    Tried::Failed(error) => failure = Some(error),
                }
            }
        }
        match failure {
            // What was claimed is running and must be handed out, whatever happened beside it.
            Some(error) if claimed.is_empty() => Err(error),
            _ => Ok(claimed),
        }
    }

    /// Whether hybrid mode looks at a page now.
    pub(super) async fn is_fallback_scan_due(&self, request: &ClaimRequest) -> bool {
        let walk = self.shared.scan.walk(request);
        let walk = walk.lock().await;
        let interval = self.config().fallback_interval;
        !walk.found.is_empty()
            || walk
                .looked_at
                .is_none_or(|at| self.runtime().monotonic() >= at + interval)
    }

    /// How long log-scan mode has nothing to look at, as far as it knows.
    pub(super) async fn scan_rests_for(&self, request: &ClaimRequest) -> Duration {
        let walk = self.shared.scan.walk(request);
        let walk = walk.lock().await;
        match &walk.round {
            Some(round) if walk.found.is_empty() => self.rest_after(round),
            _ => Duration::ZERO,
        }
    }

    /// How long a walk rests: until there can be something that this round has not seen.
    fn rest_after(&self, round: &Round) -> Duration {
        if !round.is_over || round.epoch != self.shared.signal.epoch() {
            return Duration::ZERO;
        }
        let fallback = (round.started_at + self.config().fallback_interval)
            .saturating_sub(self.runtime().monotonic());
        let now = self.client().now();
        let next_due = round.next_due.map(|due| due.since(now));
        next_due.map_or(fallback, |next_due| next_due.min(fallback))
    }

    /// Looks at one page. A task that the store did not give is told; the others of the page are found all the same.
    async fn look(
        &self,
        walk: &mut Walk,
        request: &ClaimRequest,
        paused: &BTreeSet<QueueName>,
    ) -> Result<Option<EngineError>, EngineError> {
        if !self.goes_on(walk) {
            return Ok(None);
        }
        let keys = self.next_keys(walk).await?;
        let read_at = self.runtime().monotonic();
        walk.looked_at = Some(read_at);
        let mut ids = Vec::with_capacity(keys.len());
        for key in &keys {
            if let Ok(Key::Task(id)) = key.parse::<Key>()
                && request.wants(id.shard())
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
        let mut found = Vec::new();
        for (id, result) in read {
            match result {
                Ok(stored) if !is_wanted(&stored.task, request, paused) => {}
                Ok(stored) if stored.task.available_at > now => {
                    if let Some(round) = &mut walk.round {
                        let due = stored.task.available_at;
                        round.next_due = Some(round.next_due.map_or(due, |known| known.min(due)));
                    }
                }
                Ok(stored) => found.push((stored, read_at)),
                Err(error) if error.is_not_found() => {}
                Err(
                    error @ (EngineError::Unreadable { .. }
                    | EngineError::Store(
                        StoreError::Corrupt { .. } | StoreError::Unsupported { .. },
                    )),
                ) => tracing::warn!(task = %id, %error, "passing by a task that cannot be read"),
                Err(error) => failure = Some(error),
            }
        }
        found.sort_by_key(|(stored, _)| (stored.task.priority, stored.task.available_at));
        walk.found = found.into();
        Ok(failure)
    }

    /// Whether there is something to look at: a round that goes on, or a new one where it is time for that.
    fn goes_on(&self, walk: &mut Walk) -> bool {
        let epoch = self.shared.signal.epoch();
        let at = self.runtime().monotonic();
        let origin = match &walk.round {
            Some(round) if !round.is_over => return true,
            Some(round) if !self.rest_after(round).is_zero() => return false,
            Some(round) => round.origin.clone(),
            None => Key::Task(self.runtime().new_task_id()).to_string(),
        };
        walk.after = Some(origin.clone());
        walk.round = Some(Round {
            started_at: at,
            epoch,
            origin,
            passed_front: false,
            is_over: false,
            next_due: None,
        });
        true
    }

    /// The keys of the next page, and of the front if the end comes before the page is full.
    async fn next_keys(&self, walk: &mut Walk) -> Result<Vec<String>, EngineError> {
        let limit = self.config().log_scan_page_size;
        let mut keys: Vec<String> = Vec::new();
        while let Some(round) = &mut walk.round
            && !round.is_over
            && keys.len() < limit
        {
            let page = match self
                .client()
                .page(TASKS_PREFIX, walk.after.as_deref(), limit - keys.len())
                .await
            {
                Ok(page) => page,
                // What was listed before is looked at; the next look asks again.
                Err(_) if !keys.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            let is_end = page.next.is_none();
            walk.after = page.next;
            let listed = page.entries.into_iter().map(|entry| entry.key);
            if round.passed_front {
                let before = keys.len();
                let count = listed.len();
                keys.extend(listed.take_while(|key| *key <= round.origin));
                round.is_over = is_end || keys.len() - before < count;
            } else {
                keys.extend(listed);
                round.passed_front = is_end;
            }
        }
        Ok(keys)
    }

    /// Claims a task that was found.
    async fn try_found(
        &self,
        stored: Stored,
        read_at: Duration,
        request: &ClaimRequest,
        paused: &BTreeSet<QueueName>,
    ) -> Tried {
        if self.runtime().monotonic() < read_at + FRESH_FOR {
            return self.claim_stored(stored, request).await;
        }
        match self.read(stored.task.id).await {
            Ok(stored) if is_wanted(&stored.task, request, paused) => {
                self.claim_stored(stored, request).await
            }
            Ok(_) | Err(EngineError::Unreadable { .. }) => Tried::Gone,
            Err(error) if error.is_not_found() => Tried::Gone,
            Err(error) => Tried::Failed(error),
        }
    }
}

/// Whether a task waits for whoever asks so.
fn is_wanted(task: &Task, request: &ClaimRequest, paused: &BTreeSet<QueueName>) -> bool {
    task.status == Status::Pending
        && (request.queues.is_empty() || request.queues.contains(&task.queue))
        && (request.types.is_empty() || request.types.contains(&task.task_type))
        && !paused.contains(&task.queue)
}
