//! Claims that outlive their connection.
//!
//! A claim changes tasks and then responds to its worker. If the connection breaks in between, the tasks would stay with a worker
//! that does not know of them until their leases expire. So a claim runs independently of its request, under the request's id:
//!
//! - A request that is repeated with the same id gets the same response for a while, even if the first copy is still waiting.
//! - If the client of a request has gone and the request is not repeated within a few seconds, its tasks are released. This does not
//!   count as a retry.
//! - A response has a limited size. Tasks that do not fit into it are released at once, the least urgent first, and the next claims
//!   take fewer tasks.
//! - When the server stops, claims that wait end without tasks, and claims that are being made end first. Their tasks are handed out if
//!   the client is still there, and otherwise released at once, before the server ends.
//!
//! Two cases are not covered: a response that was written to a connection which then broke and that is not requested again, and all
//! claims in memory when this process is killed. Those tasks become claimable when their leases expire.
//!
//! Remembered claims are bounded in time, in the number of tasks and in bytes. Empty responses are not remembered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo::{ClaimRequest, Engine, EngineError, Operation, Task};
use qo_store::runtime::Runtime;
use tokio::sync::watch;

use crate::routes::tasks::size_of;

/// How long a delivered response is remembered.
const KEEP_DELIVERED: Duration = Duration::from_secs(10);
/// How long the tasks of a client that has gone are kept for it.
const KEEP_UNDELIVERED: Duration = Duration::from_secs(5);
/// The most tasks that are remembered. The oldest responses are dropped first.
const TASKS_MAX: usize = 20_000;
/// The most bytes of tasks that are remembered.
const BYTES_MAX: usize = 64 * 1024 * 1024;

type ClaimResult = Arc<Result<Vec<Task>, EngineError>>;

/// Identifies a claim request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimKey {
    pub(crate) token: String,
    pub(crate) request_id: String,
}

#[derive(Debug)]
struct RememberedClaim {
    request: ClaimRequest,
    result: watch::Sender<Option<ClaimResult>>,
    /// Whether a request has received the result.
    delivered: AtomicBool,
}

#[derive(Debug, Default)]
struct ClaimCache {
    by_key: BTreeMap<ClaimKey, Arc<RememberedClaim>>,
    /// The claims with tasks, oldest first.
    order: VecDeque<(ClaimKey, ClaimSize)>,
    size: ClaimSize,
}

/// The number and the size of claimed tasks.
#[derive(Debug, Clone, Copy, Default)]
struct ClaimSize {
    tasks: usize,
    bytes: usize,
}

impl ClaimSize {
    fn of(tasks: &[Task]) -> Self {
        Self {
            tasks: tasks.len(),
            bytes: tasks.iter().map(size_of).sum(),
        }
    }

    fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Self) {
        self.tasks -= other.tasks;
        self.bytes -= other.bytes;
    }

    fn is_too_large(self) -> bool {
        self.tasks > TASKS_MAX || self.bytes > BYTES_MAX
    }
}

#[derive(Debug)]
pub(crate) struct Claims {
    engine: Arc<dyn Engine>,
    runtime: Arc<dyn Runtime>,
    /// The largest response, in bytes of tasks.
    response_max_bytes: usize,
    /// The size of a task in recent claims, in bytes.
    task_bytes: AtomicUsize,
    cache: Mutex<ClaimCache>,
    stopping: watch::Sender<bool>,
    /// The number of claims whose tasks are neither delivered nor released.
    unsettled: watch::Sender<usize>,
}

/// Counts a claim as unsettled until it is dropped.
struct Unsettled(Arc<Claims>);

impl Unsettled {
    fn new(claims: &Arc<Claims>) -> Self {
        claims.unsettled.send_modify(|count| *count += 1);
        Self(Arc::clone(claims))
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.unsettled.send_modify(|count| *count -= 1);
    }
}

impl Claims {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        runtime: Arc<dyn Runtime>,
        response_max_bytes: usize,
    ) -> Self {
        Self {
            engine,
            runtime,
            response_max_bytes,
            task_bytes: AtomicUsize::new(0),
            cache: Mutex::default(),
            stopping: watch::Sender::new(false),
            unsettled: watch::Sender::new(0),
        }
    }

    /// Ends the claims that wait.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Waits until the tasks of all claims are delivered or released.
    pub(crate) async fn settled(&self) {
        let mut unsettled = self.unsettled.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let _ = unsettled.wait_for(|count| *count == 0).await;
    }

    /// The most tasks of one claim, if they are as large as recent ones.
    fn count_max(&self) -> usize {
        let task_bytes = self.task_bytes.load(Ordering::Relaxed).max(1);
        (self.response_max_bytes / task_bytes).max(1)
    }

    /// Removes and returns the tasks that do not fit into a response.
    fn cut(&self, tasks: &mut Vec<Task>) -> Vec<Task> {
        if tasks.is_empty() {
            return Vec::new();
        }
        let mut bytes = 0;
        let mut kept = 0;
        for task in tasks.iter() {
            bytes += size_of(task);
            if kept > 0 && bytes > self.response_max_bytes {
                break;
            }
            kept += 1;
        }
        let total: usize = tasks.iter().map(size_of).sum();
        let average = total / tasks.len();
        // Half of what was known, so that a few small tasks do not make the next claim too large.
        let known = self.task_bytes.load(Ordering::Relaxed);
        let average = usize::midpoint(known, average).max(average);
        self.task_bytes.store(average, Ordering::Relaxed);
        tasks.split_off(kept)
    }

    /// Claims for a request. When the server stops, an engine that can end the waits of its claims does so. Any other engine takes back
    /// what it claims for a caller that has gone, or the tasks wait for the end of their leases.
    async fn claim_for(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let mut request = request.clone();
        request.max = request.max.min(self.count_max());
        let mut claim = std::pin::pin!(self.engine.claim(&request));
        tokio::select! {
            biased;
            result = &mut claim => result,
            () = self.stopped() => {
                if self.engine.end_waits() {
                    claim.await
                } else {
                    Ok(Vec::new())
                }
            }
        }
    }

    /// Claims tasks, or returns the tasks that were claimed under this key before.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        key: ClaimKey,
        request: ClaimRequest,
    ) -> Result<ClaimResult, EngineError> {
        let (claim, is_new) = {
            let mut cache = self.lock();
            match cache.by_key.get(&key) {
                Some(claim) if claim.request == request => (Arc::clone(claim), false),
                Some(_) => {
                    return Err(EngineError::BadRequest(
                        "this request id was used for a claim with another body; use a new id for each request"
                            .to_owned(),
                    ));
                }
                None => {
                    let claim = Arc::new(RememberedClaim {
                        request,
                        result: watch::Sender::new(None),
                        delivered: AtomicBool::new(false),
                    });
                    cache.by_key.insert(key.clone(), Arc::clone(&claim));
                    (claim, true)
                }
            }
        };
        let mut result = claim.result.subscribe();
        if is_new {
            let claims = Arc::clone(self);
            let claim = Arc::clone(&claim);
            let unsettled = Unsettled::new(self);
            self.runtime.spawn(Box::pin(async move {
                claims.run(key, claim, unsettled).await;
            }));
        }
        let result = result
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|result| result.clone());
        claim.delivered.store(true, Ordering::Relaxed);
        result.ok_or_else(|| EngineError::BadRequest("the claim was not carried out".to_owned()))
    }

    /// Carries out the claim, remembers it for a while, and releases tasks that were not delivered.
    async fn run(
        self: Arc<Self>,
        key: ClaimKey,
        claim: Arc<RememberedClaim>,
        unsettled: Unsettled,
    ) {
        let mut result = self.claim_for(&claim.request).await;
        let excess = match &mut result {
            Ok(tasks) => self.cut(tasks),
            Err(_) => Vec::new(),
        };
        let result = Arc::new(result);
        let tasks = result.as_ref().as_ref().map_or(0, Vec::len);
        if let Ok(claimed) = result.as_ref()
            && !claimed.is_empty()
        {
            self.remember(&key, ClaimSize::of(claimed));
        } else {
            self.lock().by_key.remove(&key);
        }
        claim.result.send_replace(Some(Arc::clone(&result)));
        let reason = "it does not fit into the response";
        self.release(&excess, reason).await;
        if tasks == 0 {
            return;
        }
        // A server that stops refuses to repeat a response.
        tokio::select! {
            biased;
            () = self.runtime.sleep(KEEP_UNDELIVERED) => {}
            () = self.stopped() => {}
        }
        // Whoever still waits for the result gets it.
        if claim.delivered.load(Ordering::Relaxed) || claim.result.receiver_count() > 0 {
            drop(unsettled);
            self.runtime
                .sleep(KEEP_DELIVERED.saturating_sub(KEEP_UNDELIVERED))
                .await;
            self.forget(&key);
            return;
        }
        self.forget(&key);
        // A request from now on makes a new claim. A request that arrived just before may still receive these tasks; its first
        // outcome then fails because the lease is lost.
        if claim.delivered.load(Ordering::Relaxed) {
            return;
        }
        let Ok(tasks) = result.as_ref() else { return };
        self.release(tasks, "the client that claimed it has gone")
            .await;
    }

    /// Releases tasks, all at once: a claim can have hundreds, and each may need a commit.
    async fn release(&self, tasks: &[Task], reason: &str) {
        let releases: Vec<_> = tasks
            .iter()
            .filter_map(|task| {
                Some((
                    task.id,
                    Operation::Release {
                        lease: task.lease_id?,
                    },
                ))
            })
            .collect();
        if releases.is_empty() {
            return;
        }
        let ids: Vec<_> = releases.iter().map(|(id, _)| *id).collect();
        let released = self.engine.act_many(releases).await;
        for (task, released) in ids.iter().zip(released) {
            match released {
                Ok(_) => tracing::info!(%task, reason, "released a claimed task"),
                Err(error) => {
                    tracing::warn!(%task, reason, %error, "could not release a claimed task");
                }
            }
        }
    }

    fn remember(&self, key: &ClaimKey, size: ClaimSize) {
        let mut cache = self.lock();
        cache.order.push_back((key.clone(), size));
        cache.size.add(size);
        while cache.size.is_too_large() && cache.order.len() > 1 {
            if let Some((oldest, size)) = cache.order.pop_front() {
                cache.by_key.remove(&oldest);
                cache.size.remove(size);
            }
        }
    }

    fn forget(&self, key: &ClaimKey) {
        let mut cache = self.lock();
        let index = cache.order.iter().position(|(ordered, _)| ordered == key);
        if let Some((_, size)) = index.and_then(|index| cache.order.remove(index)) {
            cache.size.remove(size);
            cache.by_key.remove(key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClaimCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
