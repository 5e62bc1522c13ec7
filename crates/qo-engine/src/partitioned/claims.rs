//! Claims from all partitions.
//!
//! A claim first looks at what is due in each partition, and chooses the most urgent tasks of all. Then it claims from each
//! partition as many as it chose there. So it never claims more than it was asked for, and it claims in the order of the whole
//! queue.
//!
//! If nothing is due, it waits for the first partition that has something. Looking changes nothing, so the other waits are just
//! dropped: no task is claimed for a claim that no longer wants it.
//!
//! When one task becomes due, not all waiting claims should ask for it. Claims for the same queues and types therefore wait in a
//! line, and only the first of them waits at the partitions. It lets the next one do so as soon as its own wait ends, and then
//! claims. If other claims were faster, it goes to the end of the line.
//!
//! Engines that cannot tell what is due are asked one after the other, beginning with another one each time.
//!
//! | fault | effect |
//! | --- | --- |
//! | some partitions fail | the others are claimed from; the claim fails only if all fail |
//! | the caller goes away during the claims | each engine releases what it claimed and could not return; what had arrived here is released from here |
//! | the process dies then | the leases of these tasks expire, as after every claim |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use qo_core::{QueueName, Task, TaskType};
use qo_store::runtime::RuntimeExt;
use tokio::sync::Mutex as TurnMutex;

use super::PartitionedEngine;
use crate::api::{ClaimRequest, DueTask};
use crate::engine::Engine;
use crate::error::EngineError;

/// How long a claim waits at the partitions before it looks at all of them again.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The same while a partition fails.
const WAIT_MAX_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// The least time between two rounds that found nothing.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The most time between two rounds over engines that cannot tell what is due.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How often a claim that does not wait looks again because others were faster.
const LOOKS_MAX: u32 = 16;

/// The queues and types of a claim.
type Wanted = (Vec<QueueName>, Vec<TaskType>);

/// The lines of waiting claims, by what they want.
#[derive(Debug, Default)]
pub(super) struct ClaimTurns {
    lines: Mutex<BTreeMap<Wanted, Weak<TurnMutex<()>>>>,
}

impl ClaimTurns {
    /// The line of claims like this one. A line without claims is forgotten.
    fn line(&self, request: &ClaimRequest) -> Arc<TurnMutex<()>> {
        let wanted = (request.queues.clone(), request.types.clone());
        let mut lines = self.lock();
        if let Some(line) = lines.get(&wanted).and_then(Weak::upgrade) {
            return line;
        }
        lines.retain(|_, line| line.strong_count() > 0);
        let line = Arc::default();
        lines.insert(wanted, Arc::downgrade(&line));
        line
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Wanted, Weak<TurnMutex<()>>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at all partitions showed.
enum Looked {
    /// How many tasks to claim from which partitions.
    Due(Vec<(usize, usize)>),
    /// Nothing is due. Names the partitions that responded, and whether all did.
    Nothing { at: Vec<usize>, by_all: bool },
    /// An engine cannot tell.
    Unknown,
}

impl PartitionedEngine {
    /// Claims tasks and passes them on as they arrive.
    pub(super) async fn claim_from_all(
        &self,
        request: &ClaimRequest,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        let deadline = self.runtime.monotonic() + Duration::from_millis(request.wait_ms);
        let mut looks = 0;
        loop {
            looks += 1;
            let (responded, by_all) = match self.look(request).await? {
                Looked::Unknown => return self.claim_in_turn(request, deadline, each).await,
                Looked::Due(shares) => {
                    if self.claim_shares(request, shares, each).await? > 0 {
                        return Ok(());
                    }
                    // Other claims were faster.
                    if self.left(deadline).is_zero() && looks >= LOOKS_MAX {
                        return Ok(());
                    }
                    continue;
                }
                Looked::Nothing { at, by_all } => (at, by_all),
            };
            if self.left(deadline).is_zero() {
                return self.claim_nothing(request, &responded, each).await;
            }
            self.wait_for_due(request, deadline, by_all).await;
        }
    }

    fn left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.runtime.monotonic())
    }

    /// Looks at what is due in all partitions, and chooses the most urgent tasks.
    async fn look(&self, request: &ClaimRequest) -> Result<Looked, EngineError> {
        let look = ClaimRequest {
            wait_ms: 0,
            ..request.clone()
        };
        let looks = self.partitions.iter().map(|engine| engine.due(&look));
        let mut due: Vec<(DueTask, usize)> = Vec::new();
        let mut responded = Vec::new();
        let mut failure = None;
        for (partition, result) in join_all(looks).await.into_iter().enumerate() {
            match result {
                Ok(None) => return Ok(Looked::Unknown),
                Ok(Some(tasks)) => {
                    responded.push(partition);
                    due.extend(tasks.into_iter().map(|task| (task, partition)));
                }
                Err(EngineError::QueuePaused { .. }) => responded.push(partition),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            if responded.is_empty() {
                return Err(error);
            }
            tracing::debug!(%error, "a partition does not respond; claiming from the others");
        }
        if due.is_empty() {
            return Ok(Looked::Nothing {
                by_all: responded.len() == self.partitions.len(),
                at: responded,
            });
        }
        due.sort_unstable();
        due.truncate(request.max);
        let mut shares = BTreeMap::new();
        for (_, partition) in due {
            *shares.entry(partition).or_insert(0) += 1;
        }
        Ok(Looked::Due(shares.into_iter().collect()))
    }

    /// Claims from each partition its share, and returns how many tasks were claimed.
    async fn claim_shares(
        &self,
        request: &ClaimRequest,
        shares: Vec<(usize, usize)>,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<usize, EngineError> {
        let mut claims: FuturesUnordered<_> = shares
            .into_iter()
            .map(|(partition, max)| async move {
                let share = ClaimRequest {
                    max,
                    wait_ms: 0,
                    ..request.clone()
                };
                self.partition(partition).claim(&share).await
            })
            .collect();
        let (mut claimed, mut failure) = (0, None);
        while let Some(result) = claims.next().await {
            match result {
                Ok(tasks) => {
                    claimed += tasks.len();
                    tasks.into_iter().for_each(&mut *each);
                }
                // It was paused after the look.
                Err(EngineError::QueuePaused { .. }) => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if claimed == 0 => Err(error),
            _ => Ok(claimed),
        }
    }

    /// Ends a claim that found nothing as an engine would: with nothing, or with the reason.
    async fn claim_nothing(
        &self,
        request: &ClaimRequest,
        responded: &[usize],
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        let turn = self.runtime.random_below(responded.len() as u64);
        let turn = usize::try_from(turn).unwrap_or(0);
        let Some(partition) = responded.get(turn) else {
            return Ok(());
        };
        let last = ClaimRequest {
            wait_ms: 0,
            ..request.clone()
        };
        let tasks = self.partition(*partition).claim(&last).await?;
        tasks.into_iter().for_each(each);
        Ok(())
    }

    /// Waits until something is due anywhere, or the wait is over. May return early.
    async fn wait_for_due(&self, request: &ClaimRequest, deadline: Duration, by_all: bool) {
        let wait_max = if by_all {
            WAIT_MAX
        } else {
            WAIT_MAX_AFTER_FAILURE
        };
        let line = self.turns.line(request);
        let left = self.left(deadline);
        let _turn = tokio::select! {
            biased;
            turn = line.lock() => turn,
            () = self.runtime.sleep(left) => return,
        };
        let began = self.runtime.monotonic();
        let wait = self.left(deadline).min(wait_max);
        let wait = ClaimRequest {
            max: 1,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            ..request.clone()
        };
        let looks = self.partitions.iter().map(|engine| engine.due(&wait));
        let mut looks: FuturesUnordered<_> = looks.collect();
        while let Some(result) = looks.next().await {
            if result.is_ok_and(|due| due.is_none_or(|due| !due.is_empty())) {
                return;
            }
        }
        let took = self.runtime.monotonic().saturating_sub(began);
        let pause = PAUSE_MIN.saturating_sub(took).min(self.left(deadline));
        self.runtime.sleep(pause).await;
    }

    /// Claims from one partition after the other, until the wait is over.
    async fn claim_in_turn(
        &self,
        request: &ClaimRequest,
        deadline: Duration,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        let count = self.partitions.len();
        let mut pause = PAUSE_MIN;
        loop {
            let first = self.runtime.random_below(count as u64);
            let first = usize::try_from(first).unwrap_or(0);
            let (mut claimed, mut responded, mut failure) = (0, false, None);
            for turn in 0..count {
                let rest = ClaimRequest {
                    max: request.max - claimed,
                    wait_ms: 0,
                    ..request.clone()
                };
                match self.partition((first + turn) % count).claim(&rest).await {
                    Ok(tasks) => {
                        responded = true;
                        claimed += tasks.len();
                        tasks.into_iter().for_each(&mut *each);
                    }
                    Err(error) => failure = Some(error),
                }
                if claimed >= request.max {
                    break;
                }
            }
            let left = self.left(deadline);
            let paused = matches!(failure, Some(EngineError::QueuePaused { .. }));
            match failure {
                _ if claimed > 0 => return Ok(()),
                Some(error) if !responded && (left.is_zero() || !paused) => return Err(error),
                _ if left.is_zero() => return Ok(()),
                _ => {}
            }
            self.runtime.sleep(pause.min(left)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Claims tasks and returns them together, most urgent first.
    pub(super) async fn claim_together(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<Task>, EngineError> {
        let mut arrived = Arrived {
            engine: self,
            tasks: Vec::new(),
        };
        let tasks = &mut arrived.tasks;
        self.claim_from_all(request, &mut |task| tasks.push(task))
            .await?;
        let mut tasks = std::mem::take(&mut arrived.tasks);
        tasks.sort_by_key(DueTask::of);
        Ok(tasks)
    }
}

/// Claimed tasks that the caller has not received yet. They are released if it goes away.
struct Arrived<'a> {
    engine: &'a PartitionedEngine,
    tasks: Vec<Task>,
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        for task in std::mem::take(&mut self.tasks) {
            let Some(lease) = task.lease_id else { continue };
            let engine = self.engine.clone();
            self.engine.runtime.spawn(Box::pin(async move {
                if let Err(error) = engine.release(task.id, lease).await {
                    tracing::debug!(task = %task.id, %error, "a claimed task was not released; its lease expires");
                }
            }));
        }
    }
}
